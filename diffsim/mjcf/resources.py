"""Where a model's files come from: the disk, for a model that the user names by its path, or a dict in memory.

A model may come from strangers. Text opens no files. `allow_outside=False` opens those in the folder tree of the model
alone, and links are followed before that is judged. Only regular files of bounded size are read, and there is no
network.

The second half is what the readers of meshes, height fields and images share: how they refuse a file, and how much they
take. What a header promises is checked against these limits and the length of the file before arrays of that size are
made.
"""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from diffsim.base.errors import expect

LARGEST_XML = 64 * 2**20
LARGEST_ASSET = 2**30


class Refusal(ValueError):
    """A file or asset that cannot be used; the message says why, `hint` how to mend it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ResourceError(Refusal):
    """A file that cannot be had."""


class MissingResource(ResourceError):
    """There is no file of this name at any place where it may be."""


class OutsideError(ResourceError):
    """A file that lies outside of the model's folder; it was not looked at."""


class Resources:
    """Reads files by the names that a model uses for them.

    folder: the model's own folder; None for a model that came as text.
    assets: files in memory by name, looked at first.
    allow_outside: whether files outside of `folder` may be read; None: those of a model that has a folder.
    """

    def __init__(
        self, folder: Path | None, assets: Mapping[str, bytes] | None = None, allow_outside: bool | None = None
    ) -> None:
        expect({} if assets is None else assets, "assets", "a dictionary of files by name", "items")
        self.folder = folder.resolve() if folder is not None else None
        self.assets = {_tidy(name): data for name, data in (assets or {}).items()}
        self.allow_outside = folder is not None if allow_outside is None else allow_outside

    def xml(self, name: str, near: str = "") -> tuple[str, bytes]:
        """An included file: its full name and its contents; looked for in the model's folder, then beside `near`."""
        return self._read(_places(name, "", near), LARGEST_XML)

    def asset(self, name: str, folder: str = "", near: str = "", strippath: bool = False) -> bytes:
        """The contents of a mesh, image or height field, below `folder` of the model's folder or beside file `near`."""
        place = PurePosixPath(_tidy(name)).name if strippath else name
        return self._read(_places(place, folder, near), LARGEST_ASSET)[1]

    def locate(self, name: str, folder: str = "", near: str = "") -> str:
        """The path of an asset from the model's folder, without reading it; empty if there is no such file."""
        for place in _places(name, folder, near):
            if place in self.assets or _is_file(place, self._path(place)):
                return place
        return ""

    def _read(self, places: list[str], largest: int) -> tuple[str, bytes]:
        for place in places:
            if place in self.assets:
                return place, _bounded(place, self.assets[place], largest)
        base = PurePosixPath(places[0]).name
        if base in self.assets:
            return base, _bounded(base, self.assets[base], largest)
        for place in places:
            path = self._path(place)
            if path is not None and _is_file(place, path):
                return place, self._open(place, path, largest)
        if self.folder is None:
            hint = "give it in assets={name: bytes}, or load the model by its path"
        else:
            searched = dict.fromkeys(str((self.folder / place).parent) for place in places)
            hint = f"looked in {' and '.join(searched)}"
        raise MissingResource(f"file '{places[0]}' is not there", hint)

    def _path(self, place: str) -> Path | None:
        """Where on the disk a name points to; None if there is no disk to look at."""
        if self.folder is None and not self.allow_outside:
            return None
        try:
            path = ((self.folder or Path.cwd()) / place).resolve()
        except (OSError, ValueError, RuntimeError) as problem:
            raise _no_name(place, problem) from None
        inside = self.folder is not None and path.is_relative_to(self.folder)
        if not inside and not self.allow_outside:
            raise OutsideError(
                f"file '{place}' is outside of the model's folder",
                "pass allow_outside=True to allow it, or leave out --strict",
            )
        return path

    @staticmethod
    def _open(place: str, path: Path, largest: int) -> bytes:
        try:
            if path.stat().st_size > largest:
                raise ResourceError(f"file '{place}' is larger than {largest >> 20} MiB")
            return path.read_bytes()
        except OSError as problem:
            raise ResourceError(f"file '{place}' cannot be read: {problem.strerror}") from None


def _is_file(place: str, path: Path | None) -> bool:
    try:
        return path is not None and path.is_file()
    except (OSError, ValueError) as problem:
        raise _no_name(place, problem) from None


def _no_name(place: str, problem: Exception) -> ResourceError:
    return ResourceError(f"'{place[:80]}' is no file name ({getattr(problem, 'strerror', None) or problem})")


def _tidy(name: str) -> str:
    """A name with forward slashes and without `.` and `..` parts that can be resolved; upward parts remain."""
    return os.path.normpath(name.replace("\\", "/")) if name else ""


def _places(name: str, folder: str, near: str) -> list[str]:
    """Where a name may point to, relative to the model's folder, best first."""
    beside = str(PurePosixPath(near.replace("\\", "/")).parent) if near else ""
    candidates = [os.path.join(folder, name), os.path.join(folder, beside, name), os.path.join(beside, folder, name)]
    return list(dict.fromkeys(_tidy(candidate) for candidate in candidates))


def _bounded(name: str, data: bytes, largest: int) -> bytes:
    if isinstance(data, str):
        data = data.encode()
    if len(data) > largest:
        raise ResourceError(f"file '{name}' is larger than {largest >> 20} MiB")
    return data


# per mesh; an STL file has its own limit, MuJoCo's
MOST_VERTICES = 1_000_000
MOST_FACES = 2_000_000
MOST_STL_FACES = 200_000
# of an image or a height field: 4096 x 4096
MOST_PIXELS = 2**24
# of all meshes, and of all height fields of a model
MOST_IN_ALL = 2**25
# of all textures of a model
MOST_TEXELS = 2**27


class AssetError(Refusal):
    """An asset that cannot be used."""


def check_count(number: int, most: int, what: str) -> None:
    """Raises AssetError where there is too much of something."""
    if number > most:
        raise AssetError(f"has {number} {what}, the limit is {most}")


def kind_of(name: str, content_type: str | None, kinds: dict[str, str]) -> str:
    """The media type of a file: what the attribute content_type says (without parameters), else by the ending."""
    if content_type:
        return content_type.split(";")[0].strip().lower()
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    return kinds.get(ending, ending)
