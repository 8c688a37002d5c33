"""A directory that is a store: what lies in it, how it comes to be, and in which format.

A store is made in a way that a kill at any moment leaves either no store or a whole one: each file is made under
a name of its own and linked into place when it is complete, ``FORMAT`` last. So a file that is missing or empty
in a directory that has a ``FORMAT`` is damage, never a store that is about to be.
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
"""A file of so many bytes that a full disk gives back to what makes room: taking away needs room to write in."""
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

    Safe among processes that do the same. Raises `StoreReadOnly` where nothing may be written, `NoStore` where
    the directory holds files of another kind, and what `check_format` raises.
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
    """Whether a store may yet come to be at `path`: there is nothing, or what a whole or a half store has."""
    try:
        names = [one.name for one in path.iterdir()]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return all(name == _FORMAT_NAME or _is_part(name) or _of_lmdb(name) for name in names)


def has_format(path: Path) -> bool | None:
    """Whether a directory says that it is a store of a format; None if it says nothing yet."""
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
        pass  # it goes just now: another list than the next
    return sorted(found)


def _of_lmdb(name: str) -> bool:
    file = name.removesuffix("-lock")
    return any(_generation(file, one) is not None for one in (RECORDS, VALUES))


def _is_part(name: str) -> bool:
    # FORMAT is linked last: a maker that died leaves some of these, and the next one goes on from there.
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
            pass  # another process was first, and what it linked is as complete
    sync(path)


def check_format(path: Path) -> None:
    """Raise unless `path` is a store this version can read: `NoStore`, `DamagedStore` or `NewerFormat`."""
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
    """Raise `DamagedStore` for what is no plain file: to open a pipe waits for ever."""
    if not file.is_file():
        raise DamagedStore(f"{file} {_OTHER}")


def part_faults(path: Path) -> dict[str, str]:
    """The faults of each part of a store besides its LMDB files; empty if there are none."""
    return {
        name: "" if is_kind(path / name) else _OTHER if os.path.lexists(path / name) else _MISSING
        for name, is_kind in _PARTS.items()
    }


def make_empty_directories(path: Path) -> None:
    """Make the directories that a copy lost because they were empty, if this process may."""
    for name in (JOURNALS, FILES):
        if not (path / name).exists() and os.access(path, os.W_OK):
            (path / name).mkdir(exist_ok=True)


def reserve(path: Path) -> None:
    """Hold some room for `release_reserve`, where there is any."""
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
    """Give back the room that is held; False where none was."""
    try:
        (path / _RESERVE).unlink()
    except OSError:
        return False
    return True


def is_disk_full(error: OSError) -> bool:
    """Whether a disk had no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def newest(path: Path, name: str) -> Path:
    """The LMDB file of a name: compacting one makes its successor, `records.1.lmdb` after `records.lmdb`."""
    for _ in range(3):  # a successor may take the place of what was just listed
        found = generations(path, name)[-1:]
        if found and os.path.lexists(found[0]):
            return found[0]
    raise DamagedStore(f"{path / name}.lmdb is missing from the store")


def generations(path: Path, name: str) -> list[Path]:
    """The LMDB files of a name that lie there, the newest last. Others than that are what a kill left."""
    # Not a `glob`: it takes longer than all else that opening a store needs of Python.
    numbers = [number for one in os.listdir(path) if (number := _generation(one, name)) is not None]  # noqa: PTH208
    return [generation_of(path, name, number) for number in sorted(numbers)]


def generation_of(path: Path, name: str, number: int) -> Path:
    """The LMDB file of a name and a number of times it was compacted."""
    return path / (f"{name}.{number}.lmdb" if number else f"{name}.lmdb")


def successor(path: Path) -> Path:
    """The file that takes the place of an LMDB file when it is compacted."""
    name, _, number = path.name.removesuffix(".lmdb").partition(".")
    return generation_of(path.parent, name, int(number or 0) + 1)


def _generation(file: str, name: str) -> int | None:
    if not (file.startswith(name) and file.endswith(".lmdb")):
        return None
    number = file.removesuffix(".lmdb").removeprefix(name).removeprefix(".")
    return int(number or 0) if number.isdigit() or not number else None


def is_writable(path: Path) -> bool:
    """Whether this process may write everywhere in the store."""
    files = [path, newest(path, RECORDS), newest(path, VALUES), path / LOCKS, path / NUMBERS]
    journals = path / JOURNALS  # which `complete` makes
    return all(os.access(file, os.W_OK) for file in [*files, *[journals] * journals.exists()])


def identity(path: Path) -> tuple[int, int] | None:
    """A key that distinguishes a directory from another in its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def path_of(directory: int) -> Path | None:
    """The current path of an open directory; None if the system does not say."""
    try:
        if hasattr(fcntl, "F_GETPATH"):  # macOS
            return Path(os.fsdecode(fcntl.fcntl(directory, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
        return Path(os.readlink(f"/proc/self/fd/{directory}"))  # noqa: PTH115  the link is no path to a file
    except OSError:
        return None


def is_full(path: Path) -> bool:
    """Whether the disk under a directory has next to no room left."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < 1 << 16


def gone_error(path: Path) -> NoStore:
    """The error for a store whose directory is gone or was replaced."""
    return NoStore(f"the store at {path} is gone since it was opened; if another is in its place, open that one")


def is_same(path: Path, fd: int) -> bool:
    """Whether what lies at a path is the file that is open as `fd`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def sync(path: Path) -> None:
    """Have the disk keep a file's content, or a directory's entries."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def warn_if_remote(path: Path) -> None:
    """Warn, once per place, of a file system on which locks and maps are not to be trusted."""
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
