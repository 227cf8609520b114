import xml.etree.ElementTree

from stillmotion.report.plot_style import GRAY, TEXT_COLOR, add_legend_above, assign_colors, new_axes, to_inline_svg


def test_inline_svg_names_no_host_and_takes_the_pages_colour():
    figure, axes = new_axes(title="a < b")
    axes.plot([1, 2], [3, 4])
    svg = to_inline_svg(figure, 'losses of "a" & b')
    assert svg.startswith("<svg viewBox=")
    assert "http" not in svg
    assert TEXT_COLOR not in svg
    assert "currentColor" in svg
    rooted = svg.replace("<svg ", '<svg xmlns:xlink="x" ', 1)
    assert xml.etree.ElementTree.fromstring(rooted).get("aria-label") == 'losses of "a" & b'


def test_every_name_has_a_colour_of_its_own_and_the_untrained_network_is_grey():
    result = assign_colors(["a", "untrained", "b"])
    assert result["untrained"] == GRAY
    assert len(set(result.values())) == 3
    assert len(assign_colors([str(i) for i in range(20)])) == 20


def test_long_titles_and_names_are_not_cut_off():
    name = "/home/someone/models/dinov2-small@frames=16,stride=4,size=224,layer=11"
    figure, axes = new_axes(width=3.4, title=name)
    axes.plot([0, 1], label=name)
    add_legend_above(axes)
    figure.draw_without_rendering()
    assert axes.get_title("left").replace("\n", "") == name
    assert axes.get_tightbbox().x1 <= figure.bbox.x1  # all colours of the plot
