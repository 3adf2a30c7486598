"""The setting of the book's claims."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ppbook.parameters import load_setting
from ppmodel.clusters.specs import DATA
from ppmodel.errors import SpecificationError
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import ALLREDUCE, P2P


def test_words_of_a_setting_are_known_at_once(tmp_path, monkeypatch):
    """A word that is none is named with its line; the words are the library's."""
    monkeypatch.chdir(tmp_path)
    text = (DATA / "settings" / "default.yaml").read_text()
    for key, words in {"p2p": P2P, "allreduce": ALLREDUCE, "concat": CONCATENATIONS}.items():
        usual = next(word for word in words if f"value: {word}," in text)
        Path("mine.yaml").write_text(text.replace(f"{{value: {usual},", "{value: wrong,", 1))
        with pytest.raises(SpecificationError) as refused:
            load_setting("mine.yaml")
        assert (refused.value.field, refused.value.value) == (f"{key}.value", "'wrong'")
        assert re.fullmatch(r"mine.yaml:\d+", refused.value.where)
        assert repr(words[0]) in refused.value.rule
        for word in words:
            Path("mine.yaml").write_text(text.replace(f"{{value: {usual},", f"{{value: {word},", 1))
            load_setting("mine.yaml")


@pytest.mark.parametrize("field", ["compute_efficiency", "memory_efficiency"])
def test_no_more_is_attained_than_there_is(field):
    """Neither by a file nor by a change of one value."""
    replace(load_setting("default"), **{field: 1.0})
    with pytest.raises(SpecificationError, match=f"{field} = 1.5: must be less than or equal to 1"):
        replace(load_setting("default"), **{field: 1.5})
