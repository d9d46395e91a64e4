import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilepress.evaluate.windows import Window, Windowing, batches, cut, plan


def scored_positions(windows):
    return [position for window in windows for position in range(window.stop - window.scored, window.stop)]


def test_windows_side_by_side():
    assert list(cut(10, 4, 4)) == [Window(0, 4, 3), Window(4, 8, 3), Window(8, 10, 1)]


def test_overlapping_windows_count_only_new_tokens():
    assert list(cut(10, 4, 2)) == [Window(0, 4, 3), Window(2, 6, 2), Window(4, 8, 2), Window(6, 10, 2)]


def test_a_last_window_of_one_token_predicts_nothing():
    assert list(cut(9, 4, 4)) == [Window(0, 4, 3), Window(4, 8, 3)]


def test_a_text_shorter_than_a_window_is_one_window():
    assert list(cut(3, 2048, 2048)) == [Window(0, 3, 2)]
    assert list(cut(3, 2048, 1)) == [Window(0, 3, 2)]


def test_with_a_token_to_begin_with_every_token_counts():
    assert list(cut(5, 2, 2, begin=7)) == [Window(0, 2, 2, 7), Window(2, 4, 2, 7), Window(4, 5, 1, 7)]
    assert list(cut(4, 3, 1, begin=7)) == [Window(0, 3, 3, 7), Window(1, 4, 1, 7)]


@given(count=st.integers(2, 60), length=st.integers(2, 20), data=st.data())
def test_every_token_with_a_context_counts_once(count, length, data):
    stride = data.draw(st.integers(1, length))
    windows = list(cut(count, length, stride))
    without_context = {0} if stride < length else set(range(0, count, length))
    assert scored_positions(windows) == [position for position in range(count) if position not in without_context]
    assert all(0 <= window.start < window.stop - window.scored < window.stop <= count for window in windows)
    assert all(window.stop - window.start <= length for window in windows)


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
@pytest.mark.parametrize("stride", [None, 3])
def test_a_batch_has_windows_of_one_shape_and_the_order_stays(model, batch, stride):
    planned = plan(50, Windowing(window=8, stride=stride, batch=batch), model)
    assert [window for group in planned for window in group] == list(cut(50, 8, stride or 8))
    for group in planned:
        assert len(group) <= batch
        assert len({(window.stop - window.start, window.scored) for window in group}) == 1
    assert batch == 1 or max(map(len, planned)) > 1


def test_only_the_first_windows(model):
    assert plan(50, Windowing(window=8, limit=2), model) == [[Window(0, 8, 7)], [Window(8, 16, 7)]]
    assert plan(50, Windowing(window=8, limit=1, begin=1), model) == [[Window(0, 7, 7, 1)]]


def test_the_window_is_the_usual_one_or_what_the_model_takes(model, monkeypatch):
    assert plan(5000, Windowing(limit=1), model) == [[Window(0, 128, 127)]]
    monkeypatch.setattr(model.config, "max_position_embeddings", 8192)
    assert plan(5000, Windowing(limit=1), model) == [[Window(0, 2048, 2047)]]


@pytest.mark.parametrize(
    ("windowing", "message"),
    [
        (Windowing(window=8, stride=9), "a stride of 9 would skip tokens between windows of 8; give 8 or less"),
        (Windowing(window=1), "a window of 1 has no token with another before it; give 2 or more"),
        (Windowing(window=129), "the model takes 128 tokens at once, not a window of 129; give 128 or less"),
    ],
)
def test_impossible_windows_are_refused(model, windowing, message):
    with pytest.raises(ValueError, match=message):
        plan(50, windowing, model)


def test_batches_leave_nothing_out():
    assert batches([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
