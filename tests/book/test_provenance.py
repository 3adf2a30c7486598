"""What a build was made from is told truly."""

import subprocess
import tarfile

from ppbook.build.provenance import commit_of, write_archive


def git(folder, *arguments):
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", folder, *name, *arguments], check=True, capture_output=True, text=True).stdout


def test_the_commit_and_whether_files_differ(tmp_path):
    """A clone names its commit; a changed or a new source file is told; a folder inside a clone is no clone."""
    source = tmp_path / "data"
    source.mkdir()
    (source / "a.yaml").write_text("1")
    assert commit_of(tmp_path) == ("no clone", "")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    assert commit_of(tmp_path) == (head, "as committed")
    assert commit_of(source) == ("no clone", "")
    (tmp_path / "a built book").mkdir()
    (tmp_path / "a built book" / "page.html").touch()
    assert commit_of(tmp_path) == (head, "as committed")
    (source / "b.yaml").touch()
    assert commit_of(tmp_path) == (head, "files differ")
    (source / "b.yaml").unlink()
    (source / "a.yaml").write_text("2")
    assert commit_of(tmp_path) == (head, "files differ")


def test_the_archive_has_what_was_committed(tmp_path):
    """The same bytes each time, of a clone only: not of a folder that lies in somebody's repository."""
    source = tmp_path / "data"
    source.mkdir()
    (source / "a.yaml").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    (source / "mine.yaml").touch()
    first, second = (tmp_path / name for name in ("first.tar.gz", "second.tar.gz"))
    assert write_archive(first, tmp_path)
    assert write_archive(second, tmp_path)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as packed:
        assert [member.name for member in packed if member.isfile()] == ["ppmodel/data/a.yaml"]
    assert not write_archive(tmp_path / "third.tar.gz", source)


def test_without_git_there_is_no_clone(tmp_path, monkeypatch):
    """A machine without git is no error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of() == ("no clone", "")
    assert not write_archive(tmp_path / "none.tar.gz")
