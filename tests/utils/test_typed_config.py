import pytest

from stillmotion.errors import StillmotionError
from stillmotion.methods.moco import MoCoConfig
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides, parse_assignments

CONFIG = get_recipe("k400-bod-simclr", debug=True)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("method.static_dynamic.radius", "0.3", 0.3),
        ("method.static_dynamic.method", "eig", "eig"),
        ("optim.epochs", "7", 7),
        ("optim.warmup_epochs", "2", 2.0),
        ("method.prediction.per_frame_kernels", "true", True),
        ("method.prediction.holdout", "leave-one-out", "leave-one-out"),
        ("method.prediction.holdout", "2", 2),
        ("method.model.stage_channels", "4,8", (4, 8)),
        ("data.synthetic.confound", "color=trajectory", ("color=trajectory",)),
        ("data.split", "none", None),
        ("data.split", "train", "train"),
        ("method.objective", "moco", MoCoConfig()),
    ],
)
def test_text_is_read_as_the_fields_own_type(field, text, value):
    result = apply_overrides(CONFIG, {field: text})
    for name in field.split("."):
        result = getattr(result, name)
    assert result == value
    assert type(result) is type(value)


def test_values_of_the_right_type_are_taken_as_they_are_and_the_rest_is_kept():
    changed = apply_overrides(
        CONFIG, {"method.model.stage_channels": (4, 8), "optim.lr": 1, "method.prediction.per_frame_kernels": False}
    )
    assert changed.method.model.stage_channels == (4, 8)
    assert apply_overrides(
        changed, {"method.model.stage_channels": CONFIG.method.model.stage_channels, "optim.lr": CONFIG.optim.lr}
    ) == (CONFIG)


def test_changes_are_made_in_order_so_that_an_objective_comes_before_its_fields():
    changed = apply_overrides(CONFIG, {"method.objective": "moco", "method.objective.queue_size": "64"})
    assert changed.method.objective == MoCoConfig(queue_size=64)


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("method.static_dynamic.radios", "1", "no field 'method.static_dynamic.radios'.*did you mean radius"),
        ("nosuch", "1", "no field 'nosuch'.*data, method, solver"),
        ("optim.lr.x", "1", "no field 'optim.lr.x': lr is .* and has no fields"),
        ("optim.epochs", "many", "optim.epochs is 'many'; expected a whole number"),
        ("optim.epochs", "1.5", "expected a whole number"),
        ("method.static_dynamic.method", "fast", "expected none, slow, riesz, eig"),
        ("method.prediction.holdout", "some", "expected a whole number or leave-one-out"),
        ("method.prediction.per_frame_kernels", "2", "expected true or false"),
        ("data.synthetic.values_per_factor", "4,4", "expected 4 whole numbers"),
        ("method.model.stage_channels", "4,x", "expected whole numbers separated by commas"),
        ("method.objective", "simcrl", "expected simclr or moco"),
        ("method.static_dynamic", "slow", "expected the fields method, radius"),
        ("optim", "lars", "expected the fields name, lr"),
        ("optim.batch_size", "0", "optim.batch_size is 0; it must be at least 1"),
    ],
)
def test_a_field_or_value_that_is_not_there_is_named_with_the_remedy(field, text, words):
    with pytest.raises(StillmotionError, match=words) as caught:
        apply_overrides(CONFIG, {field: text})
    assert "\n" not in str(caught.value)


def test_assignments_are_split_at_the_first_equals_sign():
    assert parse_assignments(["a.b=1", "c=x=y"]) == {"a.b": "1", "c": "x=y"}
    with pytest.raises(StillmotionError, match=r"'optim\.lr' sets nothing"):
        parse_assignments(["optim.lr"])
