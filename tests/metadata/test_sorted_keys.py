"""Keys in order, against a plain sorted list."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from embedbk.metadata import sorted_keys
from embedbk.metadata.sorted_keys import SortedKeys


@pytest.mark.parametrize("seed", range(10))
def test_keys_are_in_order_whatever_comes_and_goes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_keys, "CHUNK_KEYS", 4)
    chance = random.Random(seed)
    model = {f"/{chance.randrange(300):03}" for _ in range(seed * 5)}
    keys = SortedKeys(model)
    for _ in range(600):
        key = f"/{chance.randrange(300):03}"
        if key in model:
            keys.remove(key)
            model.remove(key)
        else:
            keys.add(key)
            model.add(key)
        if chance.random() < 0.1:
            for key in list(model) if chance.random() < 0.1 else ():
                keys.remove(key)
                model.remove(key)
        first, after = (f"/{chance.randrange(300):03}" for _ in range(2))
        after = after if chance.random() < 0.5 else ""
        expected = sorted(each for each in model if each >= first and each > after)
        assert list(islice(keys.begin(first, after), 20)) == expected[:20]
        assert list(keys.begin("")) == sorted(model)
