"""Every module imports from the layers below its own only, and no modules import each other in a ring."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import stillmotion

# Each imports from itself and from those before it; docs/architecture.md says what each holds.
LAYERS = (
    ("errors", "amounts", "edge", "files", "parent", "registry", "options", "distributed"),
    ("functional",),
    ("losses",),
    ("nn",),
    ("data",),
    ("methods",),
    ("optim",),
    ("config",),
    ("train",),
    ("recipes",),
    ("encoders",),
    ("evaluate",),
    ("index",),
    ("tasks",),
    ("explain",),
    ("report",),
    ("study",),
    ("browse",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROOT = Path(stillmotion.__file__ or "").parent
EXEMPT = {"stillmotion", "stillmotion.__main__"}  # the doors


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports of a module, those within functions too; not those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from statements(ast.Module(node.orelse, []))
        else:
            yield from statements(node)


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of this library that one of them names in an import."""
    found: set[str] = set()
    for node in statements(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{name}, line {node.lineno}: imports are written in full"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {module if module in MODULES else node.module or "" for module in whole}
    return frozenset(found & set(MODULES) - {"stillmotion"})


def layer(name: str) -> str:
    return name.split(".")[1]


@pytest.mark.parametrize("name", sorted(set(MODULES) - EXEMPT))
def test_a_module_imports_from_the_layers_below_it(name: str) -> None:
    assert not {other for other in imported(name) if RANK[layer(other)] > RANK[layer(name)]}


def test_every_layer_is_there() -> None:
    assert {layer(name) for name in set(MODULES) - EXEMPT} == set(RANK)


def test_no_modules_import_each_other_in_a_ring() -> None:
    graph = TopologicalSorter({name: imported(name) - {name} for name in MODULES})
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
