"""Draw the rooms of the package into ARCHITECTURE.md: `python scripts/draw_rooms.py`.

The drawing is made from the code, so it cannot be wrong for long: arrows are real imports, and each line is
the first sentence of a package. A test compares.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- rooms: drawn by scripts/draw_rooms.py -->\n"
END = "<!-- end of rooms -->\n"
MODULES = ("errors", "registry")
"""Layers that are one file."""
DEEPEST = 2
"""How many levels of folders are shown."""
WIDEST = 80
"""How long a sentence may be."""


def drawing(package: Path) -> str:
    """Return the imports between the layers of `package`, and what each of its rooms says of itself."""
    imports = layer_imports(package)
    edges = without_shortcuts(imports)
    arrows = "\n".join(
        f"  {layer} --> {' & '.join(sorted(below))}" for layer, below in sorted(edges.items()) if below
    )
    rooms = "\n".join(room_lines(package, imports))
    return f"```mermaid\nflowchart BT\n{arrows}\n```\n\n```text\n{rooms}\n```\n"


def room_lines(package: Path, edges: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield a line for each room, the lowest layer first: its name, indented by its level, and what it is."""
    heights = {layer: len(reachable(edges, layer)) for layer in edges}
    files = [*(package / f"{name}.py" for name in MODULES), *package.rglob("__init__.py")]
    rooms = {file: file.relative_to(package).with_suffix("").parts for file in files}
    shown = {file: [p for p in parts if p != "__init__"] for file, parts in rooms.items()}
    for file, parts in sorted(shown.items(), key=lambda at: (heights.get("".join(at[1][:1]), 0), at[1])):
        if 1 <= len(parts) <= DEEPEST:
            yield f"{'  ' * (len(parts) - 1) + parts[-1]:<14} {first_sentence(file)}"


def first_sentence(file: Path) -> str:
    """Return what a module says first; only up to the colon if that is long."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    sentence = " ".join(re.split(r"(?<=\.)\s", text + " ", maxsplit=1)[0].rstrip(". ").split())
    return sentence if len(sentence) <= WIDEST else sentence.partition(": ")[0]


def layer_imports(package: Path) -> dict[str, set[str]]:
    """Map each layer to those that its modules import."""
    layers = {*MODULES, *(path.parent.name for path in package.glob("*/__init__.py"))}
    found: dict[str, set[str]] = {layer: set() for layer in layers}
    for file in package.rglob("*.py"):
        layer = file.relative_to(package).parts[0].removesuffix(".py")
        if layer in layers:
            found[layer] |= {name for name in imported(file, package.name) if name in layers - {layer}}
    return found


def imported(file: Path, root: str) -> Iterator[str]:
    """Yield the layer of each absolute import of our own, those for types included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == root:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{root}."):
            yield str(node.module).split(".")[1]


def without_shortcuts(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out each arrow that a longer way says as well."""
    below = {layer: reachable(edges, layer) for layer in edges}
    return {
        layer: {
            target
            for target in targets
            if not any(
                target in below[other] and layer not in below[other] for other in targets - {target, layer}
            )
        }
        for layer, targets in edges.items()
    }


def reachable(edges: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [*edges[start]]
    while todo:
        layer = todo.pop()
        if layer not in found:
            found.add(layer)
            todo += edges[layer]
    return found


def redrawn(page: str, rooms: str) -> str:
    """Return the page with `rooms` between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{rooms}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(
        redrawn(PAGE.read_text(encoding="utf-8"), drawing(ROOT / "src" / "everstep")), encoding="utf-8"
    )
