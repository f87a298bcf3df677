"""A coordinate changes its meaning in one place, and comes back to the same pixel."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_solo as solo

SCREENS = [(1920, 1080), (1366, 768), (2560, 1440), (3840, 2160), (1920, 1200), (3440, 1440), (3024, 1964)]
SCREENS += [(1080, 1920), (1280, 1024), (1024, 768), (800, 600), (1344, 756), (5120, 1440), (1440, 900)]


def box(x, y, width, height):
    return solo.Box(x=x, y=y, width=width, height=height)


def shot(width, height, area):
    return solo.Shot(width=width, height=height, area=area)


# -- the size rule -------------------------------------------------------------------------------------


def tiles(w, h):
    """OpenAI's tile rule, also Azure's: into 2048 x 2048, then the short side to 768."""
    scale = min(1, 2048 / max(w, h))
    scale *= min(1, 768 / (min(w, h) * scale))
    return int(w * scale), int(h * scale)


def patches(w, h):
    """OpenAI's patch rule of the small models: at most 1536 patches of 32 pixels."""
    fits = math.ceil(w / 32) * math.ceil(h / 32) <= 1536 and max(w, h) <= 2048
    return (w, h) if fits else (0, 0)


def claude(w, h):
    """Anthropic's older tier: long edge and tokens at most 1568."""
    fits = max(w, h) <= 1568 and math.ceil(w / 28) * math.ceil(h / 28) <= 1568
    return (w, h) if fits else (0, 0)


def qwen(w, h):
    """smart_resize of Qwen2.5-VL: each side to the nearest multiple of 28."""
    return round(w / 28) * 28, round(h / 28) * 28


@pytest.mark.parametrize("rule", [tiles, patches, claude, qwen])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_service_resizes_what_is_sent(screen, rule):
    sent = solo.fit(*screen)
    assert rule(*sent) == sent


@given(st.integers(28, 8000), st.integers(28, 8000))
def test_never_larger_and_in_whole_patches(width, height):
    w, h = solo.fit(width, height)
    assert w <= width and h <= height and w % 28 == 0 and h % 28 == 0
    assert max(w, h) <= 1344 and min(w, h) <= 756


def test_known_sizes():
    assert solo.fit(1920, 1080) == (1344, 756)
    assert solo.fit(1080, 1920) == (756, 1344)
    assert solo.fit(1344, 756) == (1344, 756)
    assert solo.fit(1920, 1080, most=(1920, 1080)) == (1904, 1064)
    assert solo.fit(10, 20) == (10, 20)


# -- between image and screen --------------------------------------------------------------------------

areas = st.builds(box, *[st.integers(-4000, 4000)] * 2, *[st.integers(28, 8000)] * 2)


@given(areas, st.data())
def test_every_screen_point_comes_back_exactly(area, data):
    seen = shot(*solo.fit(area.width, area.height), area)
    point = solo.ScreenPoint(
        x=area.x + data.draw(st.integers(0, area.width - 1)),
        y=area.y + data.draw(st.integers(0, area.height - 1)),
    )
    assert solo.to_screen(solo.to_shot(point, seen), seen) == point


@given(areas, st.floats(-5000, 9000), st.floats(-5000, 9000))
def test_no_answer_leaves_the_area_shown(area, x, y):
    seen = shot(*solo.fit(area.width, area.height), area)
    assert area.contains(solo.to_screen(solo.ShotPoint(x=x, y=y), seen))


def test_the_scales_of_x_and_y_are_separate():
    area = box(0, 0, 1366, 768)
    seen = shot(*solo.fit(1366, 768), area)
    corner = solo.to_screen(solo.ShotPoint(x=seen.width - 1, y=seen.height - 1), seen)
    assert abs(corner.x - 1365) <= 1 and abs(corner.y - 767) <= 1


def test_a_monitor_left_of_the_first_has_negative_points():
    left = shot(1344, 756, box(-1920, 0, 1920, 1080))
    assert solo.to_screen(solo.ShotPoint(x=0, y=0), left) == solo.ScreenPoint(x=-1920, y=0)
    assert solo.to_screen(solo.ShotPoint(x=672, y=378), left) == solo.ScreenPoint(x=-960, y=540)


# -- the spaces of models ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "x", "y", "size", "expect"),
    [
        ("px", 960, 540, (1920, 1080), (960, 540)),
        ("1000", 800, 500, (1920, 1080), (1536, 540)),
        ("1000", 591, 472, (1920, 1080), (1134.72, 509.76)),
        ("999", 999, 999, (1344, 756), (1344, 756)),
        ("1", 0.371, 0.5, (1000, 500), (371, 250)),
        ("1", 960, 540, (1920, 1080), (960, 540)),  # Kimi: what is above 1 is pixels
        ("percent", 39.0625, 41.6667, (1280, 720), (500, 300)),
    ],
)
def test_each_space_means_what_its_models_mean(unit, x, y, size, expect):
    point = solo.from_space(x, y, space=solo.Space(unit=unit), width=size[0], height=size[1])
    assert (point.x, point.y) == pytest.approx(expect, abs=0.01)


@pytest.mark.parametrize("most", [(1344, 756), (1008, 560)])
@pytest.mark.parametrize(
    ("unit", "span"), [("px", None), ("1000", 1000), ("999", 999), ("1", 1), ("percent", 100)]
)
@given(x=st.integers(0, 1919), y=st.integers(0, 1079))
def test_every_space_and_size_reaches_the_same_pixel(unit, span, most, x, y):
    seen = shot(*solo.fit(1920, 1080, most=most), box(0, 0, 1920, 1080))
    across, down = (span, span) if span else (seen.width, seen.height)
    said = (x + 0.5) / 1920 * across, (y + 0.5) / 1080 * down
    point = solo.from_space(*said, space=solo.Space(unit=unit), width=seen.width, height=seen.height)
    hit = solo.to_screen(point, seen)
    assert abs(hit.x - x) <= 1 and abs(hit.y - y) <= 1


def test_the_prompt_states_the_range():
    told = solo.space_sentence(solo.Space(), width=1344, height=756)
    assert "1343" in told and "755" in told and "pixels" in told
    told = solo.space_sentence(solo.Space(unit="1000", order="yx"), width=1344, height=756)
    assert "1000" in told and "y comes first" in told and "1343" not in told


def test_spaces_as_written_on_the_command_line():
    assert solo.parse_space("1000,yx") == solo.Space(unit="1000", order="yx")
    assert solo.parse_space("PX") == solo.Space()
    assert solo.parse_space("100") == solo.parse_space("%") == solo.Space(unit="percent")
    for wrong in ("", "500", "px,yz", "1000yx"):
        with pytest.raises(solo.Usage, match="percent"):
            solo.parse_space(wrong)


# -- boxes ---------------------------------------------------------------------------------------------

small = st.builds(box, *[st.integers(-8, 8)] * 2, *[st.integers(1, 8)] * 2)


def inside(boxes, x, y):
    return sum(one.contains(solo.ScreenPoint(x=x, y=y)) for one in boxes)


@given(small, st.lists(small, max_size=4))
def test_uncovered_is_what_no_window_above_hides(one, covers):
    left = solo.uncovered(one, covers)
    for x in range(-9, 17):
        for y in range(-9, 17):
            assert inside(left, x, y) == (inside([one], x, y) and not inside(covers, x, y))


@given(small, small)
def test_clip_is_the_common_part(one, other):
    common = solo.clip(one, other)
    assert common == solo.clip(other, one)
    points = [
        (x, y) for x in range(-9, 17) for y in range(-9, 17) if inside([one], x, y) and inside([other], x, y)
    ]
    assert len(points) == (common.width * common.height if common else 0)


def test_around_holds_monitors_with_negative_origins():
    assert solo.around([box(0, 0, 10, 10), box(-5, 2, 3, 20)]) == box(-5, 0, 15, 22)


def test_a_box_in_words_of_the_image():
    assert (
        solo.span(box(960, 540, 960, 540), shot(1344, 756, box(0, 0, 1920, 1080))) == "x 672-1344, y 378-756"
    )
