"""Folders whose files nobody else can replace, for compiled code: loading a library runs it with the user's rights."""

import grp
import os
import pwd
import shlex
import stat
from pathlib import Path


def find_privacy_problem(folder: Path) -> str | None:
    """How another user could replace what is in a folder, and what to do; None where only its user and root can.

    Every folder up to the root counts, as who may write to one of them may rename the next and put another in its place.
    Parts that do not exist are left out. `folder` is absolute; a symbolic link in it is refused, so resolve the part of it
    that the user has chosen.
    """
    for part in (folder, *folder.parents):
        try:
            status = part.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{part}: {error.strerror}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{part} is a {'symbolic link' if stat.S_ISLNK(status.st_mode) else 'file'}, expected a folder"
        # In a parent with the sticky bit, as /tmp has, others cannot rename or remove what is not theirs.
        if reason := find_ownership_problem(status, sticky_serves=part != folder):
            advice = f" (chmod go-w {shlex.quote(str(part))})" if status.st_uid == os.geteuid() else ""
            return f"{part} {reason}{advice}"
    return None


def find_ownership_problem(status: os.stat_result, sticky_serves: bool = False) -> str | None:
    """How another user could write to a file or folder of this status; None where only this user and root can."""
    if status.st_uid not in (os.geteuid(), 0):  # root's own: root can replace Python and PyTorch as well
        return f"belongs to user {status.st_uid}, expected {os.geteuid()} or root"
    others_write = status.st_mode & stat.S_IWOTH
    group_writes = status.st_mode & stat.S_IWGRP and not is_private_group(status.st_gid)
    if (others_write or group_writes) and not (sticky_serves and status.st_mode & stat.S_ISVTX):
        return "is writable by other users"
    return None


def is_private_group(gid: int) -> bool:
    """Whether a group is the one that many systems make for each user: of the same name and without other members.

    Where users have such groups, their folders are writable by the group unless they ask for something else.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def make_private(folder: Path) -> str | None:
    """Make a folder if it does not exist; returns what keeps it from being private or writable, None if nothing does."""
    if reason := find_privacy_problem(folder):  # before anything is made in a place of somebody else
        return reason
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written to"
    return find_privacy_problem(folder)  # once more: of what was made here, and of who was quicker
