"""A mapped node on two actors of a local Ray."""

from somatize import Broker, Graph, node


def square(x):
    return x * x


if __name__ == "__main__":
    g = Graph.somatize(node(square).named("square").mapped().at("pool"))
    with Broker.ray({"pool": {"actors": 2, "num_cpus": 0.5}}, start_timeout=120) as broker:
        assert g.forward([1, 2, 3, 4], broker=broker) == [1, 4, 9, 16]
