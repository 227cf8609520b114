"""Modules import from lower layers only, and without cycles."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import stillmotion

# From the lowest layer to the highest; each imports from its own layer and from those before it. The longest prefix of
# a module decides: the table of training verbs imports nothing until a cell is used, so encoders can use it.
LAYERS = (
    ("errors", "utils", "distributed"),
    ("functional",),
    ("losses",),
    ("models",),
    ("data",),
    ("methods",),
    ("optim",),
    ("report",),
    ("training.tasks",),
    ("encoders",),
    ("planning",),
    ("evaluation",),
    ("index",),
    ("explain",),
    ("training", "planning.dry_run"),
    ("studies",),
    ("browse",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROOT = Path(stillmotion.__file__ or "").parent
EXEMPT = {"stillmotion", "stillmotion.__main__"}  # the entry points


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Return all imports of a module, also those within functions, without those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from statements(ast.Module(node.orelse, []))
        else:
            yield from statements(node)


@cache
def imported_modules(name: str) -> frozenset[str]:
    """Return the modules of this library that a module imports."""
    names: set[str] = set()
    for node in statements(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{name}, line {node.lineno}: imports are written in full"
            full_names = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {module if module in MODULES else node.module or "" for module in full_names}
    return frozenset(names & set(MODULES) - {"stillmotion"})


def layer(name: str) -> str:
    """Return the longest prefix of a module's name that is a layer."""
    parts = name.split(".")[1:]
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in RANK), parts[0])


def test_modules_import_from_their_own_layer_and_those_below() -> None:
    upward = [
        f"{name} imports {other}"
        for name in sorted(set(MODULES) - EXEMPT)
        for other in sorted(imported_modules(name))
        if RANK[layer(other)] > RANK[layer(name)]
    ]
    assert not upward, "\n".join(upward)


def test_every_layer_is_there() -> None:
    assert {layer(name) for name in set(MODULES) - EXEMPT} == set(RANK)


def test_no_modules_import_each_other_in_a_ring() -> None:
    graph = TopologicalSorter({name: imported_modules(name) - {name} for name in MODULES})
    try:
        graph.prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


def test_imports_within_functions_are_seen_and_those_for_type_checkers_are_not() -> None:
    source = "\n".join(
        (
            "if TYPE_CHECKING:",
            "    import one",
            "else:",
            "    import two",
            "def f():",
            "    with g():",
            "        from three import four",
        )
    )
    assert [ast.unparse(node) for node in statements(ast.parse(source))] == ["import two", "from three import four"]
