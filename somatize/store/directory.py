"""The directory of a store: its files, how it is made, and the check of its format.

A kill at any moment of making a store leaves either no store or a complete one: each file is made under a temporary
name and linked into place when it is complete, ``FORMAT`` last. So a missing or empty file in a directory with a
``FORMAT`` is damage, never a store that is being made.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from somatize.errors import (
    DamagedStore,
    NewerFormat,
    NoStore,
    NotWritten,
    SomatizeError,
    StoreError,
    StoreReadOnly,
    StoreWarning,
)

FORMAT = 1
_FORMAT_NAME = "FORMAT"
_FORMAT_START = "somatize store, format "
RECORDS = "records"
VALUES = "values"
LOCKS = "locks"
NUMBERS = "numbers"
JOURNALS = "journals"
FILES = "files"
_RESERVE, _RESERVED = "reserve", 256 << 10
"""A file of this size is deleted when the disk is full, because even deleting records needs room to write."""
_PARTS = {LOCKS: Path.is_file, NUMBERS: Path.is_file, JOURNALS: Path.is_dir, FILES: Path.is_dir}
_MISSING, _OTHER = "is missing from the store", "is not what a store has under this name"
_LMDB_FILES = tuple(f"{name}.lmdb{end}" for name in (RECORDS, VALUES) for end in ("", "-lock"))
_MAKING = ".making-"
_REMOTE = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"}
)
_warned_remote: set[int] = set()


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Raise system errors as `StoreError` that names the store and, if it is another, the file."""
    try:
        yield
    except SomatizeError:
        raise
    except OSError as error:
        raise store_error(path, error) from error


def store_error(path: Path, error: OSError) -> StoreError:
    """The error for a system error: names the store and the file."""
    why = error.strerror or str(error)
    if is_disk_full(error):
        return NotWritten(error.errno, why, os.fsdecode(error.filename or path))
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreError(f"{path}: {why}; close files or other stores, or raise the limit (ulimit -n)")
    file = error.filename if isinstance(error.filename, str | bytes | os.PathLike) else None
    where = "" if file is None or Path(os.fsdecode(file)) == path else f": {os.fsdecode(file)}"
    return StoreError(f"{path}{where}: {why}")


def make(path: Path, fill: Callable[[Path], None]) -> None:
    """Make `path` a store unless it is one; `fill` writes the LMDB files of an empty store into a directory.

    Several processes may do this at once. Raises `StoreReadOnly`, `NoStore` if the directory has other files, and
    the errors of `check_format`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NoStore(f"{path} is a file or lies below one; a store is a directory") from None
    except PermissionError:
        raise StoreReadOnly(f"{path} does not exist, and may not be made in {path.parent}") from None
    if os.path.lexists(path / _FORMAT_NAME):
        check_format(path)
        return
    strangers = [name for name in sorted(one.name for one in path.iterdir()) if not _is_part(name)]
    if strangers:
        raise NoStore(
            f"{path} is no store: it has no {_FORMAT_NAME} but holds {strangers[0]!r}; give an empty directory"
        )
    try:
        making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=path))
    except PermissionError:
        raise StoreReadOnly(f"{path} is no store yet, and may not be written to") from None
    try:
        _fill_and_link(making, path, fill)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise StoreError(f"{path} cannot be made a store: {why}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def may_become(path: Path) -> bool:
    """Whether `path` can become a store: it is missing, empty, or has only files of a store."""
    try:
        names = [one.name for one in path.iterdir()]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return all(name == _FORMAT_NAME or _is_part(name) or _of_lmdb(name) for name in names)


def has_format(path: Path) -> bool | None:
    """Whether the ``FORMAT`` file is that of a store; None if it is missing or empty."""
    try:
        if os.path.lexists(path / _FORMAT_NAME) and not (path / _FORMAT_NAME).is_file():
            return False
        said = (path / _FORMAT_NAME).read_bytes()
    except OSError:
        return None
    return said.startswith(_FORMAT_START.encode("ascii")) if said else None


def entries(path: Path) -> list[tuple[str, int, int]]:
    """The name, size and modification time in nanoseconds of everything in a directory."""
    found = []
    try:
        for one in path.iterdir():
            stat = one.lstat()
            found.append((one.name, stat.st_size, stat.st_mtime_ns))
    except OSError:
        pass  # it is being deleted; the next list differs
    return sorted(found)


def _of_lmdb(name: str) -> bool:
    file = name.removesuffix("-lock")
    return any(_generation(file, one) is not None for one in (RECORDS, VALUES))


def _is_part(name: str) -> bool:
    # FORMAT is linked last: a process that died before it leaves some of these, and the next one completes them.
    return name.startswith(_MAKING) or name in {*_LMDB_FILES, LOCKS, NUMBERS, JOURNALS, FILES, _RESERVE}


def _fill_and_link(making: Path, path: Path, fill: Callable[[Path], None]) -> None:
    fill(making)
    for name in (LOCKS, NUMBERS):
        (making / name).write_bytes(b"")
    (making / _FORMAT_NAME).write_text(f"{_FORMAT_START}{FORMAT}\n", encoding="ascii")
    for name in (JOURNALS, FILES):
        (path / name).mkdir(exist_ok=True)
    for name in (*_LMDB_FILES, LOCKS, NUMBERS, _FORMAT_NAME):
        if (making / name).stat().st_size:
            sync(making / name)
        try:
            os.link(making / name, path / name)
        except FileExistsError:
            pass  # another process was first, and its file is as complete
    sync(path)


def check_format(path: Path) -> None:
    """Raise `NoStore`, `DamagedStore` or `NewerFormat` unless `path` is a store that this version can read."""
    if not path.is_dir():
        raise NoStore(f"there is no store at {path}: {'it is a file' if path.exists() else 'no such directory'}")
    if os.path.lexists(path / _FORMAT_NAME):
        _must_be_file(path / _FORMAT_NAME)
    try:
        said = (path / _FORMAT_NAME).read_bytes()
    except FileNotFoundError:
        raise NoStore(f"{path} is no store: it has no file {_FORMAT_NAME}") from None
    start = _FORMAT_START.encode("ascii")
    number = said[len(start) :].strip()
    if not said.startswith(start) or not number.isdigit():
        raise DamagedStore(f"{path / _FORMAT_NAME} does not say a store's format; it starts with {said[:40]!r}")
    if int(number) > FORMAT:
        raise NewerFormat(f"{path} has format {int(number)}; this somatize reads up to {FORMAT}: upgrade it to read on")
    for name in (RECORDS, VALUES):
        file = newest(path, name)
        _must_be_file(file)
        lock = file.with_name(f"{file.name}-lock")
        if os.path.lexists(lock):
            _must_be_file(lock)
    for name, wrong in part_faults(path).items():
        if wrong == _OTHER:
            raise DamagedStore(f"{path / name} {wrong}")


def _must_be_file(file: Path) -> None:
    """Raise `DamagedStore` unless it is a regular file: opening a pipe would wait for ever."""
    if not file.is_file():
        raise DamagedStore(f"{file} {_OTHER}")


def part_faults(path: Path) -> dict[str, str]:
    """The fault of each part of a store besides its LMDB files, by name; empty texts for none."""
    return {
        name: "" if is_kind(path / name) else _OTHER if os.path.lexists(path / name) else _MISSING
        for name, is_kind in _PARTS.items()
    }


def make_empty_directories(path: Path) -> None:
    """Make the directories that copying the store left out because they were empty, if this process may."""
    for name in (JOURNALS, FILES):
        if not (path / name).exists() and os.access(path, os.W_OK):
            (path / name).mkdir(exist_ok=True)


def reserve(path: Path) -> None:
    """Make the file that `release_reserve` deletes, if the disk has room."""
    file = path / _RESERVE
    try:
        if os.path.lexists(file) or os.statvfs(path).f_bavail * os.statvfs(path).f_frsize < 2 * _RESERVED:
            return
        making = path / f"{_MAKING}{_RESERVE}.{os.getpid()}.{threading.get_ident()}"
        try:
            making.write_bytes(bytes(_RESERVED))
            making.rename(file)
        finally:
            making.unlink(missing_ok=True)
    except OSError:
        pass


def release_reserve(path: Path) -> bool:
    """Delete the reserve file, to make room; False if there was none."""
    try:
        (path / _RESERVE).unlink()
    except OSError:
        return False
    return True


def is_disk_full(error: OSError) -> bool:
    """Whether the error means that the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def newest(path: Path, name: str) -> Path:
    """The current LMDB file of a name: the one that was compacted most often."""
    for _ in range(3):  # it may be replaced after it was listed
        found = generations(path, name)[-1:]
        if found and os.path.lexists(found[0]):
            return found[0]
    raise DamagedStore(f"{path / name}.lmdb is missing from the store")


def generations(path: Path, name: str) -> list[Path]:
    """The LMDB files of a name, the current one last; a killed compaction may leave others."""
    # Not `glob`, which takes longer than everything else that opening a store does in Python.
    numbers = [number for one in os.listdir(path) if (number := _generation(one, name)) is not None]  # noqa: PTH208
    return [generation_of(path, name, number) for number in sorted(numbers)]


def generation_of(path: Path, name: str, number: int) -> Path:
    """The path of an LMDB file that was compacted so many times: `records.lmdb`, then `records.1.lmdb`."""
    return path / (f"{name}.{number}.lmdb" if number else f"{name}.lmdb")


def successor(path: Path) -> Path:
    """The path that follows that of an LMDB file when it is compacted."""
    name, _, number = path.name.removesuffix(".lmdb").partition(".")
    return generation_of(path.parent, name, int(number or 0) + 1)


def _generation(file: str, name: str) -> int | None:
    if not (file.startswith(name) and file.endswith(".lmdb")):
        return None
    number = file.removesuffix(".lmdb").removeprefix(name).removeprefix(".")
    return int(number or 0) if number.isdigit() or not number else None


def is_writable(path: Path) -> bool:
    """Whether this process may write to every part of the store."""
    files = [path, newest(path, RECORDS), newest(path, VALUES), path / LOCKS, path / NUMBERS]
    journals = path / JOURNALS  # made by `make_empty_directories` if it is missing
    return all(os.access(file, os.W_OK) for file in [*files, *[journals] * journals.exists()])


def identity(path: Path) -> tuple[int, int] | None:
    """The device and inode of a directory; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def path_of(directory: int) -> Path | None:
    """The current path of an open directory; None if the system does not tell."""
    try:
        if hasattr(fcntl, "F_GETPATH"):  # macOS
            return Path(os.fsdecode(fcntl.fcntl(directory, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
        return Path(os.readlink(f"/proc/self/fd/{directory}"))  # noqa: PTH115
    except OSError:
        return None


def is_full(path: Path) -> bool:
    """Whether the disk of a directory has less than 64 kB left."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < 1 << 16


def gone_error(path: Path) -> NoStore:
    """The error for a store whose directory is gone or was replaced."""
    return NoStore(f"the store at {path} is gone since it was opened; if another is in its place, open that one")


def is_same(path: Path, fd: int) -> bool:
    """Whether a path leads to the file that is open as `fd`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def sync(path: Path) -> None:
    """Sync a file, or the entries of a directory, to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def warn_if_remote(path: Path) -> None:
    """Warn, once per device, of a network file system, on which locks and memory maps are unreliable."""
    device = path.stat().st_dev
    if device in _warned_remote:
        return
    _warned_remote.add(device)
    kind = _file_system(device)
    if kind in _REMOTE or kind.startswith("fuse.sshfs"):
        warnings.warn(
            f"{path} lies on a network file system ({kind}), where LMDB's locks and maps are not dependable; "
            "record to a local disk and copy the store",
            StoreWarning,
            stacklevel=2,
        )


def _file_system(device: int) -> str:
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        mount, _, rest = line.partition(" - ")
        if mount.split()[2:3] == [number]:
            return rest.split()[0]
    return ""
