"""Specifications as files, and what comes of them."""

import pytest
from sweeps import NOISY, PLAIN, SHORT

from ppmodel.studies.sweep import compute_rows, load_sweep, run_sweep


@pytest.fixture
def file(tmp_path):
    """Write a specification."""

    def write(text, name="sweep.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """The bytes of each specification's output, computed without interruption in this process."""
    folder = tmp_path_factory.mktemp("expected")
    outputs = {}
    for text in (PLAIN, SHORT):
        (folder / "sweep.yaml").write_text(text)
        out = folder / f"{len(outputs)}.parquet"
        run_sweep(folder / "sweep.yaml", out)
        outputs[text] = out.read_bytes()
    return outputs


def sweep_of(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("specification") / "sweep.yaml"
    path.write_text(text)
    return load_sweep(path)


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    return sweep_of(PLAIN, tmp_path_factory)


@pytest.fixture(scope="session")
def noisy(tmp_path_factory):
    return sweep_of(NOISY, tmp_path_factory)


@pytest.fixture(scope="session")
def plain_rows(plain):
    columns = compute_rows(plain, 0, plain.num_rows)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture(scope="session")
def noisy_rows(noisy):
    return compute_rows(noisy, 0, noisy.num_rows)
