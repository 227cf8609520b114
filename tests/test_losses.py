"""Losses that are exported for other training loops, and their doctests."""

import doctest
import inspect
from typing import get_type_hints

import pytest

from stillmotion import losses
from stillmotion.functional import contrastive, cycle, koopman

FUNCTIONS = [name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))]


def examples(module):
    return {test.name: test for test in doctest.DocTestFinder().find(module) if test.examples}


@pytest.mark.parametrize("module", [losses, contrastive, cycle, koopman], ids=lambda module: module.__name__)
def test_every_example_gives_what_it_says(module):
    answered = doctest.testmod(module)
    assert answered.attempted > 0
    assert answered.failed == 0


@pytest.mark.parametrize("name", losses.__all__)
def test_what_is_exported_can_be_called_and_is_typed(name):
    assert callable(getattr(losses, name))
    assert get_type_hints(getattr(losses, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_loss_has_an_example_and_a_type_for_each_argument(name):
    function = getattr(losses, name)
    module = inspect.getmodule(function)
    assert f"{module.__name__}.{name}" in examples(module)
    assert set(get_type_hints(function)) == {*inspect.signature(function).parameters, "return"}
    options = [p for p in inspect.signature(function).parameters.values() if p.default is not p.empty]
    assert all(p.kind is p.KEYWORD_ONLY for p in options)


def test_every_loss_of_the_library_is_exported():
    public_losses = {
        name
        for module in (contrastive, cycle, koopman)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and name.endswith("_loss")
    }
    assert public_losses <= set(losses.__all__)
