"""Files of a model: from the disk, if the model is given by its path, or from a dict in memory.

Models may come from strangers. A model given as text opens no files. With `allow_outside=False` only files below the
model's folder are opened, after symbolic links are resolved. Only regular files of limited size are read, and nothing
comes from the network.

The second half has what the readers of meshes, height fields and images share: their exception and their limits. They
compare the counts in a header with these limits and with the length of the file before they allocate arrays.
"""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from diffsim.base.errors import expect

# largest size of an XML file, bytes
LARGEST_XML = 64 * 2**20
# largest size of a mesh, image or height field, bytes
LARGEST_ASSET = 2**30


class Refusal(ValueError):
    """A file or asset cannot be used; the message says why, `hint` how to fix it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ResourceError(Refusal):
    """A file cannot be read."""


class MissingResource(ResourceError):
    """There is no file of this name in any of the folders searched."""


class OutsideError(ResourceError):
    """A file is outside the model's folder; it was not opened."""


class Resources:
    """Reads files by the names that a model gives them.

    Attributes:
      folder: the model's folder; None for a model given as text.
      assets: files in memory, by name; they take precedence.
      allow_outside: whether files outside `folder` may be read; by default, if the model has a folder.
    """

    def __init__(
        self, folder: Path | None, assets: Mapping[str, bytes] | None = None, allow_outside: bool | None = None
    ) -> None:
        expect({} if assets is None else assets, "assets", "a dictionary of files by name", "items")
        self.folder = folder.resolve() if folder is not None else None
        self.assets = {_tidy(name): data for name, data in (assets or {}).items()}
        self.allow_outside = folder is not None if allow_outside is None else allow_outside

    def xml(self, name: str, near: str = "") -> tuple[str, bytes]:
        """The full name and contents of an XML file, looked for in the model's folder and next to the file `near`."""
        return self._read(_places(name, "", near), LARGEST_XML)

    def asset(self, name: str, folder: str = "", near: str = "", strippath: bool = False) -> bytes:
        """The contents of an asset, looked for in `folder` below the model's folder and next to the file `near`."""
        place = PurePosixPath(_tidy(name)).name if strippath else name
        return self._read(_places(place, folder, near), LARGEST_ASSET)[1]

    def locate(self, name: str, folder: str = "", near: str = "") -> str:
        """The path of an asset relative to the model's folder; empty if there is no such file."""
        for place in _places(name, folder, near):
            if place in self.assets or _is_file(place, self._path(place)):
                return place
        return ""

    def _read(self, places: list[str], largest: int) -> tuple[str, bytes]:
        """The name and contents of the first file that exists: in memory, in memory without its folder, on disk."""
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
            hint = "pass it in assets={name: bytes}, or load the model by its path"
        else:
            searched = dict.fromkeys(str((self.folder / place).parent) for place in places)
            hint = f"looked in {' and '.join(searched)}"
        raise MissingResource(f"file '{places[0]}' does not exist", hint)

    def _path(self, place: str) -> Path | None:
        """The path of a name on the disk; None if the model may not open files."""
        if self.folder is None and not self.allow_outside:
            return None
        try:
            path = ((self.folder or Path.cwd()) / place).resolve()
        except (OSError, ValueError, RuntimeError) as problem:
            raise _no_name(place, problem) from None
        inside = self.folder is not None and path.is_relative_to(self.folder)
        if not inside and not self.allow_outside:
            raise OutsideError(
                f"file '{place}' is outside the model's folder",
                "pass allow_outside=True to allow it, or omit --strict on the command line",
            )
        return path

    @staticmethod
    def _open(place: str, path: Path, largest: int) -> bytes:
        """The contents of a file. Raises ResourceError if it is larger than `largest` bytes or cannot be read."""
        try:
            if path.stat().st_size > largest:
                raise ResourceError(f"file '{place}' is larger than {largest >> 20} MiB")
            return path.read_bytes()
        except OSError as problem:
            raise ResourceError(f"file '{place}' cannot be read: {problem.strerror}") from None


def _is_file(place: str, path: Path | None) -> bool:
    """Whether there is a regular file at a path. Raises ResourceError if the path cannot be one."""
    try:
        return path is not None and path.is_file()
    except (OSError, ValueError) as problem:
        raise _no_name(place, problem) from None


def _no_name(place: str, problem: Exception) -> ResourceError:
    """The error for a text that cannot be the name of a file."""
    return ResourceError(f"'{place[:80]}' is not a file name ({getattr(problem, 'strerror', None) or problem})")


def _tidy(name: str) -> str:
    """A name with forward slashes, with `.` and `..` resolved; leading `..` remain."""
    return os.path.normpath(name.replace("\\", "/")) if name else ""


def _places(name: str, folder: str, near: str) -> list[str]:
    """The paths that a name can mean, relative to the model's folder, in the order in which they are tried."""
    beside = str(PurePosixPath(near.replace("\\", "/")).parent) if near else ""
    candidates = [os.path.join(folder, name), os.path.join(folder, beside, name), os.path.join(beside, folder, name)]
    return list(dict.fromkeys(_tidy(candidate) for candidate in candidates))


def _bounded(name: str, data: bytes, largest: int) -> bytes:
    """The contents of a file in memory, as bytes. Raises ResourceError if there are more than `largest`."""
    if isinstance(data, str):
        data = data.encode()
    if len(data) > largest:
        raise ResourceError(f"file '{name}' is larger than {largest >> 20} MiB")
    return data


# limits far above what models need, which keep a damaged or malicious file from taking gigabytes:
# vertices of a mesh
MOST_VERTICES = 1_000_000
# triangles of a mesh
MOST_FACES = 2_000_000
# triangles of an STL file (MuJoCo's limit)
MOST_STL_FACES = 200_000
# pixels of an image, elevations of a height field: 4096 x 4096
MOST_PIXELS = 2**24
# vertices and triangles of all meshes of a model together, elevations of all its height fields together
MOST_IN_ALL = 2**25
# pixels of all textures of a model together
MOST_TEXELS = 2**27


class AssetError(Refusal):
    """An asset cannot be used."""


def check_count(number: int, most: int, what: str) -> None:
    """Raises AssetError if there are more than `most` of something."""
    if number > most:
        raise AssetError(f"has {number} {what}, the limit is {most}")


def kind_of(name: str, content_type: str | None, kinds: dict[str, str]) -> str:
    """The media type of a file, from its attribute content_type (without parameters) or from its extension."""
    if content_type:
        return content_type.split(";")[0].strip().lower()
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    return kinds.get(ending, ending)
