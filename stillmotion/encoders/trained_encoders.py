"""Kinds of encoders that this library trains: run directories of the training verbs, and recipes."""

from collections.abc import Callable

from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.spec import EncoderKind, EncoderSpec
from stillmotion.training.tasks import TASKS, recipe_table, verb_of_run
from stillmotion.utils.registry import import_object


def _matches_run(verb: str) -> Callable[[str], bool]:
    return lambda path: verb_of_run(path) == verb


def _load_run(verb: str) -> Callable[[EncoderSpec], Encoder]:
    return lambda spec: TASKS[verb].load("encoder")(spec)


def _load_recipe(spec: EncoderSpec) -> Encoder:
    encoder: Encoder = import_object("stillmotion.training.pretrain.encoder:load_recipe_encoder")(spec)
    return encoder


RUN_KINDS = {
    **{verb: EncoderKind("a run folder of any training verb", _matches_run(verb), _load_run(verb)) for verb in TASKS},
    "recipe": EncoderKind(
        "a recipe's name, one of `stillmotion pretrain --list-recipes`",
        lambda path: path in recipe_table("pretrain"),
        _load_recipe,
    ),
}
