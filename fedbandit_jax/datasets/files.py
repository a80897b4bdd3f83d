"""Archives and folders: finding a file in them, and reading it in pieces of whole lines.

Nothing is unpacked to disk: members are streamed.
"""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tqdm.utils import CallbackIOWrapper

from fedbandit_jax import _checks
from fedbandit_jax._progress import tqdm

BLOCK_BYTES = 32 << 20  # what is held of a file at a time
TAR_SUFFIXES = (".tar", ".tgz", ".tar.gz")
DAMAGE = (EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile)


class Block(NamedTuple):
    """Whole lines of a file, and the number of the first of them, counted from 1."""

    first_line: int
    data: bytes


class Member(NamedTuple):
    """One file of an archive or a folder."""

    name: str  # with folders, separated by "/"
    size: int
    open: Callable[[], Any]  # a binary stream


@dataclass(frozen=True)
class Source:
    """The files of one archive or folder."""

    path: Path
    members: tuple[Member, ...]

    def has(self, name: str) -> bool:
        return any(PurePosixPath(member.name).name == name for member in self.members)

    def find(self, *names: str) -> Member:
        """The member with the first of these base names that is there."""
        for name in names:
            found = [member for member in self.members if PurePosixPath(member.name).name == name]
            if len(found) > 1:
                raise ValueError(f"{self.path} has {name} more than once: {', '.join(m.name for m in found)}")
            if found:
                return found[0]
        raise FileNotFoundError(f"{self.path} has no file {' or '.join(names)}")

    def place(self, member: Member, line: int) -> str:
        """The start of a sentence about a line."""
        return f"{self.path}: line {line} of {PurePosixPath(member.name).name}"

    def blocks(self, member: Member, task: str = "reading", encoding: str = "utf-8") -> Iterator[Block]:
        """The file in pieces of whole lines of about BLOCK_BYTES, with a progress bar; UTF-8 is checked."""
        rest, line = b"", 1
        name = PurePosixPath(member.name).name
        with damage_named(self.path), member.open() as stream, byte_bar(f"{task} {name}", member.size) as bar:
            while piece := stream.read(BLOCK_BYTES):
                bar.update(len(piece))
                cut = piece.rfind(b"\n") + 1
                if not cut and len(rest) + len(piece) > 2 * BLOCK_BYTES:
                    raise ValueError(f"{self.place(member, line)} is longer than {BLOCK_BYTES >> 20} MB")
                data, rest = (rest + piece[:cut], piece[cut:]) if cut else (b"", rest + piece)
                if data:
                    yield self.checked(member, Block(line, data), encoding)
                    line += data.count(b"\n")
            if rest:
                yield self.checked(member, Block(line, rest), encoding)

    def checked(self, member: Member, block: Block, encoding: str) -> Block:
        """The block, if its bytes are text."""
        if encoding == "utf-8" and not block.data.isascii():
            try:
                block.data.decode()
            except UnicodeDecodeError as error:
                line = block.first_line + block.data.count(b"\n", 0, error.start)
                raise ValueError(f"{self.place(member, line)} is not valid UTF-8") from error
        return block

    def lines(self, member: Member, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
        """Numbered lines of text without their ends; empty ones are left out."""
        for block in self.blocks(member, encoding=encoding):
            yield from numbered_lines(block)


def numbered_lines(block: Block) -> Iterator[tuple[int, str]]:
    """The lines of a block that are not empty."""
    try:
        text = block.data.decode()
    except UnicodeDecodeError:  # cannot happen where UTF-8 is checked; of old releases some are in latin-1, some not
        text = block.data.decode("latin-1")
    # Not str.splitlines: it also cuts at characters that titles may hold.
    for number, line in enumerate(text.split("\n"), block.first_line):
        if line := line.removeprefix("\ufeff").removesuffix("\r"):
            yield number, line


def byte_bar(task: str, size: int) -> Any:
    """A bar with bytes and time left, on a terminal, for what takes over two seconds."""
    return tqdm(total=size, desc=task, unit="B", unit_scale=True, unit_divisor=1024, delay=2, disable=None)


@contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """Open a folder, a .zip, a .tar or a .tgz; the kind is told from the content, not from the name."""
    path = _checks.path("path", path, "a folder or an archive (.zip, .tar, .tgz)")
    if path.is_dir():
        yield Source(path, tuple(folder_members(path)))
        return
    if not path.exists():
        raise _checks.missing(path, "a folder or an archive (.zip, .tar, .tgz)")
    with ExitStack() as stack:
        with damage_named(path):
            members = archive_members(path, stack)
        for member in members:
            refuse_outside(path, member.name)
        yield Source(path, tuple(members))


def folder_members(folder: Path) -> Iterator[Member]:
    """Files of a folder and of the folders in it: archives unpack with or without a folder of their own."""
    for file in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        if file.is_file():
            yield Member(file.relative_to(folder).as_posix(), file.stat().st_size, partial(file.open, "rb"))


def archive_members(path: Path, stack: ExitStack) -> list[Member]:
    """Files of an archive that stays open until the stack is closed."""
    raw = stack.enter_context(path.open("rb"))
    if raw.read(2) != b"PK":
        return tar_members(path, raw, path.stat().st_size, stack)
    archive = stack.enter_context(zipfile.ZipFile(raw))
    files = [info for info in archive.infolist() if not info.is_dir()]
    inner = [info for info in files if info.filename.endswith(TAR_SUFFIXES) and "__MACOSX" not in info.filename]
    if len(inner) == 1:  # Yelp's current download is a .zip around a .tar
        return tar_members(path, stack.enter_context(archive.open(inner[0])), inner[0].file_size, stack)
    return [Member(info.filename, info.file_size, partial(archive.open, info)) for info in files]


def tar_members(path: Path, raw: Any, size: int, stack: ExitStack) -> list[Member]:
    """Files of a .tar or .tgz; a .tgz is read through once for this, so that damage shows at the start."""
    raw.seek(0)
    zipped = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    with byte_bar(f"listing {path.name}", size) as bar:
        stream = raw
        if zipped:
            stream = stack.enter_context(gzip.GzipFile(fileobj=CallbackIOWrapper(bar.update, raw)))
        try:
            archive = stack.enter_context(tarfile.TarFile(fileobj=stream))
        except tarfile.ReadError as error:
            if zipped:
                raise
            raise ValueError(f"{path} is not a folder or an archive (.zip, .tar, .tgz)") from error
        members = []
        for info in archive:
            if info.issym() or info.islnk():
                refuse_outside(path, info.linkname)
            if info.isfile():
                members.append(Member(info.name, info.size, partial(archive.extractfile, info)))
            else:
                refuse_outside(path, info.name)
    return members


def refuse_outside(path: Path, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if ".." in parts or (parts and (parts[0] == "/" or parts[0].endswith(":"))):
        raise ValueError(f"{path} has a member {name!r} whose path leaves the folder; such an archive is not read")


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Name the file when its compression or layout turns out to be broken."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(f"{path} is damaged or cut short ({str(error).rstrip('.')})") from error
