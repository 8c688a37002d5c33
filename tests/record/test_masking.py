"""What is secret on a command line is not shown; what only sounds like it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from somatize.record import about, page, writers
from somatize.record.run_info import masked

SECRET = "s3cr3t-4711"


@pytest.mark.parametrize(
    "words",
    [
        ["--password", SECRET],
        [f"--password={SECRET}"],
        ["--token", SECRET],
        [f"--hf-token={SECRET}"],
        [f"--hf_token={SECRET}"],
        ["--key", SECRET],
        ["--wandb-api-key", SECRET],
        [f"--apiKey={SECRET}"],
        ["--aws-secret-access-key", SECRET],
        ["--client-secret", SECRET],
        ["--db.password", SECRET],
        ["--PASSWORD", SECRET],
        [f"-password={SECRET}"],
        [f"--password=two words {SECRET}"],
        [f"--password1={SECRET}"],
        ["--password", f"-{SECRET}"],
        [f"db.password={SECRET}"],
        [f"+auth.token={SECRET}"],
        [f"TOKEN={SECRET}"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        [f"PGPASSWORD={SECRET}"],
        [f"postgres://ann:{SECRET}@db/runs"],
        [f"--url=https://ann:{SECRET}@host/x"],
        [f"https://{SECRET}{SECRET}@host/x"],
        [f"https://host/x?a=1&token={SECRET}&b=2"],
        ["-H", f"Authorization: Bearer {SECRET}"],
        ["-H", f"X-Api-Key: {SECRET}"],
        ["--auth", SECRET],
        [json.dumps({"user": "ann", "password": SECRET})],
        ["-c", f"login(token='{SECRET}')"],
        ["-c", f'login(api_key = "{SECRET}", rate=3)'],
        ["ghp_" + SECRET.replace("-", "") * 3],
    ],
)
def test_a_value_that_is_secret_by_its_name_is_hidden(words: list[str]) -> None:
    shown = masked(["python", "train.py", *words, "--epochs", "3"])
    assert SECRET not in " ".join(shown)
    assert SECRET.replace("-", "") not in " ".join(shown)
    assert "***" in " ".join(shown)
    assert (shown[:2], shown[-2:], len(shown)) == (["python", "train.py"], ["--epochs", "3"], len(words) + 4)


@pytest.mark.parametrize(
    "words",
    [
        ["--lr", "0.1", "--max-tokens", "512", "--tokenizer", "bpe", "--num-key-value-heads", "8"],
        ["--token-file", "token.txt", "--keyboard=qwerty", "--monkey=3", "--passes=2", "--author=ann"],
        ["https://host:8080/a@b", "git@host:path", "C:\\x", "a:b", "seed=3", "--password", "--verbose"],
        ["-c", "for key in d: print(d[key])"],
    ],
)
def test_all_else_is_shown_as_it_is(words: list[str]) -> None:
    assert masked(words) == words


def test_neither_about_nor_a_page_shows_them(script: Callable[..., Popen[str]], place: Path, tmp_path: Path) -> None:
    child = script(f"""
        secret = {SECRET[:4]!r} + {SECRET[4:]!r}
        sys.orig_argv += ["--password", secret, "TOKEN=" + secret]
        with Recorder(Store(PLACE), run="r") as recorder:
            Graph.somatize(node(abs)).forward(1, watching=recorder)
    """)
    assert child.communicate(timeout=60)[1] == ""
    told: dict[str, Any] = about(place, "r")
    assert told["argv"][-3:] == ["--password", "***", "TOKEN=***"]
    assert SECRET not in json.dumps(told) + json.dumps(writers(place, "r"))
    assert SECRET not in page(place, "r", tmp_path / "page.html").read_text(encoding="utf-8")
