"""What the readers of meshes, height fields and images share: how they refuse a file, and how much they take.

Files are input from strangers. What a header promises is checked against these limits and against the length of the
file before anything of that size is made.
"""

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


class AssetError(ValueError):
    """An asset that cannot be used; the message says why, `hint` how to mend it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


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
