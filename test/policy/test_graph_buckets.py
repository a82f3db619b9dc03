from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.policy.graphs.buckets import SHORT, STEP, Bucket, bucket_for, buckets_of_an_action, padded


@given(st.integers(1, 600))
def test_a_bucket_holds_what_it_is_for_and_wastes_less_than_a_step_of_a_long_pass(rows: int) -> None:
    size = padded(rows)
    assert size >= rows
    assert size in SHORT or (size % STEP == 0 and size - rows < STEP)


@given(st.integers(1, 600), st.data())
def test_the_states_of_a_bucket_hold_those_that_are_wanted(rows: int, data: st.DataObject) -> None:
    outputs = data.draw(st.integers(1, rows))
    bucket = bucket_for(rows, outputs)
    assert outputs <= bucket.outputs <= bucket.rows
    assert bucket.rows >= rows


def test_a_short_pass_has_one_bucket_whatever_is_wanted_of_it() -> None:
    assert {bucket_for(7, outputs) for outputs in range(1, 8)} == {Bucket(8, 8)}


@given(st.integers(1, 300), st.integers(0, 40), st.integers(0, 70), st.data())
def test_an_action_asks_for_no_bucket_that_is_not_listed(
    shortest: int, more: int, nodes: int, data: st.DataObject
) -> None:
    listed = buckets_of_an_action(shortest, shortest + more, nodes)
    draft = data.draw(st.integers(0, nodes))
    prefix = data.draw(st.integers(shortest, shortest + more))
    assert bucket_for(prefix + draft, draft + 1) in listed
    assert bucket_for(1 + draft, 1 + draft) in listed
    assert listed == sorted(set(listed), reverse=True)


def test_greedy_decoding_of_openvla_needs_few_graphs() -> None:
    assert len(buckets_of_an_action(257, 384, 0)) == 9
    assert len(buckets_of_an_action(257, 384, 64)) < 70
