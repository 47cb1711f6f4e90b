"""Detection of folders into which another user can put files."""

import os
import stat
from pathlib import Path

import pytest
from support.processes import SOMEBODY, give_away

from electra.model.cpu import private_folder
from electra.model.cpu.private_folder import find_privacy_problem, is_private_group, make_private


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder in a private folder."""
    path = tmp_path / "parent/folder"
    path.mkdir(parents=True)
    path.chmod(0o700)
    path.parent.chmod(0o700)
    return path


def test_private_folders_are_accepted(folder: Path) -> None:
    for mode in (0o700, 0o755, 0o500):
        folder.chmod(mode)
        assert find_privacy_problem(folder) is None
    assert find_privacy_problem(folder / "not/yet") is None
    folder.parent.chmod(0o1777)
    assert find_privacy_problem(folder) is None, "as in /tmp"


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777, 0o733])
def test_folder_that_others_can_write_is_rejected(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    assert find_privacy_problem(folder) == f"{folder} is writable by other users (chmod go-w {folder})"


def test_parent_that_others_can_write_is_rejected(folder: Path) -> None:
    folder.parent.chmod(0o777)
    assert find_privacy_problem(folder) == f"{folder.parent} is writable by other users (chmod go-w {folder.parent})"


def test_group_writable_folder_needs_a_private_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose only member is the user is allowed; some systems give it write permission by default."""
    folder.chmod(0o770)
    for own in (True, False):
        monkeypatch.setattr(private_folder, "is_private_group", lambda gid, own=own: own)
        assert (find_privacy_problem(folder) is None) == own


def test_private_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def private(user: tuple[str, int], group: tuple[str, list[str]]) -> bool:
        monkeypatch.setattr(private_folder.pwd, "getpwuid", lambda uid: user_of(*user))
        monkeypatch.setattr(private_folder.grp, "getgrgid", lambda gid: group_of(*group))
        return is_private_group(1000)

    def user_of(name: str, gid: int) -> os.stat_result:
        return type("User", (), {"pw_name": name, "pw_gid": gid})

    def group_of(name: str, members: list[str]) -> os.stat_result:
        return type("Group", (), {"gr_name": name, "gr_mem": members})

    assert private(("ann", 1000), ("ann", []))
    assert private(("ann", 1000), ("ann", ["ann"]))
    assert not private(("ann", 1000), ("ann", ["ann", "bob"]))
    assert not private(("ann", 1000), ("users", []))
    assert not private(("ann", 2000), ("ann", []))
    monkeypatch.undo()
    assert not is_private_group(2**31 - 7), "unknown"


@pytest.mark.parametrize("part", ["folder", "parent"])
def test_folder_of_another_user_is_rejected(folder: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder if part == "folder" else folder.parent
    me = os.geteuid()
    give_away(path, monkeypatch)
    reason = find_privacy_problem(folder)
    assert reason is not None
    assert f"{path if me == 0 else folder} belongs to user {SOMEBODY if me == 0 else me}, expected " in reason
    assert "chmod" not in reason


def test_symbolic_links_are_rejected(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert find_privacy_problem(link) == f"{link} is a symbolic link, expected a folder"
    assert find_privacy_problem(link / "inside") == f"{link} is a symbolic link, expected a folder"
    link.unlink()
    link.symlink_to(folder / "nowhere")
    assert make_private(link) == f"{link} is a symbolic link, expected a folder"
    assert not (folder / "nowhere").exists()


def test_folders_are_created_private(folder: Path) -> None:
    new = folder / "a/b"
    for _ in range(2):
        assert make_private(new) is None
        assert stat.S_IMODE(new.stat().st_mode) == 0o700
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: path != new)
        assert make_private(new) == f"{new} is not writable"
        patch.setattr(Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
        assert make_private(new) == f"{new}: Read-only file system"
    (folder / "file").touch()
    assert make_private(folder / "file/c") == f"{folder}/file is a file, expected a folder"
    folder.chmod(0o777)
    assert "writable by other users" in make_private(folder / "new")
    assert not (folder / "new").exists()


def test_folders_made_without_a_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        reason = make_private(folder / "a/b")
    finally:
        os.umask(before)
    assert reason == f"{folder}/a is writable by other users (chmod go-w {folder}/a)"
