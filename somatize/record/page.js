"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const config = { displaylogo: false, responsive: true };

function draw(place) {
  const figure = figures[place.dataset.figure];
  const look = dark.matches ? "dark" : "light";
  return Plotly.react(place, figure.data || figure[look].data, figure[look].layout, config);
}

// A figure in a part that is closed has no width: it is drawn when it is opened.
function drawShown() {
  for (const place of document.querySelectorAll("[data-figure]")) {
    if (place.offsetParent !== null) draw(place);
  }
}

for (const choice of document.querySelectorAll(".choice")) {
  choice.addEventListener("change", (event) => {
    for (const place of document.querySelectorAll(`[data-of="${choice.dataset.for}"]`)) {
      place.hidden = place.dataset.figure !== event.target.value;
    }
    drawShown();
  });
}
for (const part of document.querySelectorAll("details")) part.addEventListener("toggle", drawShown);
dark.addEventListener("change", drawShown);
addEventListener("beforeprint", drawShown);
drawShown();
document.documentElement.dataset.drawn = "yes";
