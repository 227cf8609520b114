import pytest

from stillmotion.errors import StillmotionError
from stillmotion.methods.moco import MoCoConfig
from stillmotion.recipes import recipe
from stillmotion.study.overrides import assignments, overridden

CONFIG = recipe("debug-bod-simclr")


@pytest.mark.parametrize(
    ("place", "text", "value"),
    [
        ("method.split.radius", "0.3", 0.3),
        ("method.split.how", "eig", "eig"),
        ("optim.epochs", "7", 7),
        ("optim.warmup_epochs", "2", 2.0),
        ("method.prediction.strict", "true", True),
        ("method.prediction.hold_out", "each", "each"),
        ("method.prediction.hold_out", "2", 2),
        ("method.model.channels", "4,8", (4, 8)),
        ("data.synthetic.confound", "color=trajectory", ("color=trajectory",)),
        ("data.split", "none", None),
        ("data.split", "train", "train"),
        ("method.objective", "moco", MoCoConfig()),
    ],
)
def test_text_is_read_as_the_fields_own_type(place, text, value):
    found = overridden(CONFIG, {place: text})
    for name in place.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_values_of_the_right_type_are_taken_as_they_are_and_the_rest_is_kept():
    changed = overridden(CONFIG, {"method.model.channels": (4, 8), "optim.lr": 1, "method.prediction.strict": False})
    assert changed.method.model.channels == (4, 8)
    assert overridden(
        changed, {"method.model.channels": CONFIG.method.model.channels, "optim.lr": CONFIG.optim.lr}
    ) == (CONFIG)


def test_changes_are_made_in_order_so_that_an_objective_comes_before_its_fields():
    changed = overridden(CONFIG, {"method.objective": "moco", "method.objective.queue": "64"})
    assert changed.method.objective == MoCoConfig(queue=64)


@pytest.mark.parametrize(
    ("place", "text", "words"),
    [
        ("method.split.radios", "1", "no field 'method.split.radios'.*did you mean radius"),
        ("nosuch", "1", "no field 'nosuch'.*data, method, solver"),
        ("optim.lr.x", "1", "no field 'optim.lr.x': lr is .* and has no fields"),
        ("optim.epochs", "many", "optim.epochs cannot be 'many'; expected a whole number"),
        ("optim.epochs", "1.5", "expected a whole number"),
        ("method.split.how", "fast", "expected none, slow, riesz, eig"),
        ("method.prediction.hold_out", "some", "expected a whole number or each"),
        ("method.prediction.strict", "2", "expected true or false"),
        ("data.synthetic.values", "4,4", "expected 4 whole numbers"),
        ("method.model.channels", "4,x", "expected whole numbers with commas between"),
        ("method.objective", "simcrl", "expected simclr or moco"),
        ("method.split", "slow", r"one of its fields \(how, radius"),
        ("optim", "lars", r"one of its fields \(name, lr"),
        ("optim.batch", "0", "optim.batch is 0; it must be at least 1"),
    ],
)
def test_a_field_or_value_that_is_not_there_is_named_with_the_remedy(place, text, words):
    with pytest.raises(StillmotionError, match=words) as caught:
        overridden(CONFIG, {place: text})
    assert "\n" not in str(caught.value)


def test_assignments_are_parted_at_the_first_equals_sign():
    assert assignments(["a.b=1", "c=x=y"]) == {"a.b": "1", "c": "x=y"}
    with pytest.raises(StillmotionError, match=r"'optim\.lr' sets nothing"):
        assignments(["optim.lr"])
