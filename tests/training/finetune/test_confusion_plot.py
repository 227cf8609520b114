import numpy as np

from stillmotion.training.finetune.report import plot_confusion_matrix


def test_cells_are_as_dark_as_their_share_of_the_row_and_say_their_counts():
    axes = plot_confusion_matrix(np.array([[3, 1], [0, 0]]), ["run", "sit"]).axes[0]
    (picture,) = axes.images
    np.testing.assert_allclose(picture.get_array()[..., 3], [[0.75, 0.25], [0, 0]])
    assert sorted(text.get_text() for text in axes.texts) == ["1", "3"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["run", "sit"]


def test_many_classes_are_drawn_without_numbers_or_names():
    axes = plot_confusion_matrix(np.eye(101, dtype=int), [f"class {i}" for i in range(101)]).axes[0]
    assert not axes.texts
    assert "class 3" not in [label.get_text() for label in axes.get_yticklabels()]
