"""Files that are there whole or not at all, and the checksums that show when one was changed since.

A folder's checksums are in its SHA256SUMS, which `sha256sum -c` reads as well. A file that is not listed there is not
checked: folders of earlier versions have no list, and a kill between a file and its line must not make it unreadable.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

SUMS = "SHA256SUMS"


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_checked(path: Path, mend: str) -> bytes:
    """Content of a file, compared with its checksum; `mend` ends the error's sentence."""
    for _ in range(2):  # another process may write the file between the two reads, and has then changed the list
        listed, content = read_sums(path.parent), path.read_bytes()
        if listed.get(path.name, "") in ("", checksum(content)):
            return content
    raise ValueError(f"{path} is damaged, or its line in {SUMS} is: {mend}")


def write_checked(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files and their checksums.

    The old checksums go first and the new ones come last, so a kill leaves files that are whole and not checked.
    """
    others = {name: found for name, found in read_sums(folder).items() if name not in contents}
    write_sums(folder, others)
    for name, content in contents.items():
        write_whole(folder / name, content)
    write_sums(folder, others | {name: checksum(content) for name, content in contents.items()})


def read_sums(folder: Path) -> dict[str, str]:
    """Checksums of a folder by file name; of a folder without a list, none."""
    path = folder / SUMS
    try:
        lines = path.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")
    except FileNotFoundError:
        return {}
    found = [re.fullmatch(r"([0-9a-f]{64})  ([\w.-]+)", line, re.ASCII) for line in lines]
    if not all(found):
        raise ValueError(f"{path} is damaged: delete it, and the files beside it are read without their checksums")
    return {match[2]: match[1] for match in found if match}


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Write a folder's list of checksums, unless it is that already."""
    if sums == read_sums(folder):
        return
    if sums:
        text = "".join(f"{found}  {name}\n" for name, found in sorted(sums.items()))
        write_whole(folder / SUMS, text.encode())
    else:
        (folder / SUMS).unlink()


def list_files(folder: Path, names: Collection[str]) -> None:
    """Make the list of checksums that of these files; a file that was listed before is not read again."""
    before = read_sums(folder)
    write_sums(folder, {name: before.get(name) or checksum((folder / name).read_bytes()) for name in names})


def write_whole(path: Path, content: Any) -> None:
    """Write a file under a temporary name, make sure that it is on disk, and only then give it its name."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise OSError(
            f"{path} could not be written ({error.strerror or error}); what was finished before is kept"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make new names last; only POSIX can and must."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
