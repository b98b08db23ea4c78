"""Radiator's messages get their kinds, compressed or not."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.figures.time.pushes import pushes
from mudkit.systems.radiator import Client, Context, Server, Volume


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("words", ["short", "x" * 2000])
def test_contexts_and_pushes(compress, words):
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(1), chain=1.0, compress=compress)
    clients = [
        Client(lab.device(name), server, attributes={"p2p_enabled": True}) for name in ("ann", "bob", "cy")
    ]
    lab.run(seconds=2)
    clients[0].propagate_context(Context({"ann"}, {"text": words})).result()
    lab.run(seconds=2)
    result = pushes(lab.frame("messages"))
    rows = result[["kind", "source", "target"]].values.tolist()
    assert rows == [["context", "ann", "radiator"], ["push", "radiator", "bob"], ["push", "bob", "cy"]]
