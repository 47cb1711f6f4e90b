"""Check for folders whose files other users cannot replace: loading compiled code runs it with the user's permissions."""

import grp
import os
import pwd
import shlex
import stat
from pathlib import Path


def find_privacy_problem(folder: Path) -> str | None:
    """Return how another user could replace files in a folder, and what to do; None if only its owner and root can.

    Every parent folder is checked, because a user who can write to one of them can replace the next one. Missing parts are
    skipped. `folder` is absolute; a symbolic link in it is an error, so resolve the part that the user has chosen.
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
        # In a parent with the sticky bit, such as /tmp, users can rename and remove only their own files.
        if reason := find_ownership_problem(status, sticky_suffices=part != folder):
            advice = f" (chmod go-w {shlex.quote(str(part))})" if status.st_uid == os.geteuid() else ""
            return f"{part} {reason}{advice}"
    return None


def find_ownership_problem(status: os.stat_result, sticky_suffices: bool = False) -> str | None:
    """Return how another user could write to a file or folder; None if only this user and root can."""
    if status.st_uid not in (os.geteuid(), 0):  # root is trusted: it can replace Python and PyTorch too
        return f"belongs to user {status.st_uid}, expected {os.geteuid()} or root"
    others_write = status.st_mode & stat.S_IWOTH
    group_writes = status.st_mode & stat.S_IWGRP and not is_private_group(status.st_gid)
    if (others_write or group_writes) and not (sticky_suffices and status.st_mode & stat.S_ISVTX):
        return "is writable by other users"
    return None


def is_private_group(gid: int) -> bool:
    """Whether a group is a user private group: of the user's name and without other members.

    On systems with such groups, new folders are usually writable by the group.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def make_private(folder: Path) -> str | None:
    """Create a folder if it does not exist; return why it is not private or not writable, or None."""
    if reason := find_privacy_problem(folder):  # before creating anything in another user's folder
        return reason
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} is not writable"
    return find_privacy_problem(folder)  # again: another process may have created it first
