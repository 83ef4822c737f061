"""Words, Lyndon words, shuffles and brackets, against their definitions by brute force."""

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roughformer.signatures.words import (
    all_words,
    bracket,
    lyndon_count,
    lyndon_factors,
    lyndon_words,
    shuffle,
    tracked_words,
    word_count,
    word_index,
)

SIZES = [(1, 1), (1, 4), (2, 1), (2, 6), (3, 4), (4, 3), (5, 2)]
words = st.lists(st.integers(0, 2), min_size=1, max_size=7).map(tuple)
short = st.lists(st.integers(0, 2), max_size=4).map(tuple)


def is_lyndon(word):
    return all(word < word[i:] for i in range(1, len(word)))


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_all_words_are_counted_ordered_and_indexed(d, n):
    found = list(all_words(d, n))
    want = [w for k in range(1, n + 1) for w in product(range(d), repeat=k)]
    assert found == want
    assert len(found) == word_count(d, n)
    assert [word_index(w, d) for w in found] == list(range(len(found)))


def test_there_are_no_words_of_depth_zero():
    assert word_count(3, 0) == 0
    assert list(all_words(3, 0)) == []
    assert lyndon_words(3, 0) == ()
    assert lyndon_count(3, 0) == 0


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_lyndon_words_are_the_words_below_all_their_suffixes(d, n):
    want = [w for w in all_words(d, n) if is_lyndon(w)]
    assert list(lyndon_words(d, n)) == want
    assert lyndon_count(d, n) == len(want)


@pytest.mark.parametrize(
    ("d", "n", "count"), [(3, 4, 32), (2, 12, 747), (7, 3, 140), (50, 2, 1275)]
)
def test_lyndon_counts_are_those_of_the_literature(d, n, count):
    assert lyndon_count(d, n) == count


@given(words)
def test_a_word_is_the_product_of_non_increasing_lyndon_factors(word):
    factors = lyndon_factors(word)
    assert sum(factors, ()) == word
    assert all(is_lyndon(f) for f in factors)
    assert list(factors) == sorted(factors, reverse=True)


@given(short, short)
def test_a_shuffle_is_all_interleavings(u, v):
    total = Counter()
    for places in combinations(range(len(u) + len(v)), len(u)):
        left, right = iter(u), iter(v)
        total[tuple(next(left if i in places else right) for i in range(len(u) + len(v)))] += 1
    assert shuffle(u, v) == dict(total)


@given(short, short)
def test_shuffling_is_commutative(u, v):
    assert shuffle(u, v) == shuffle(v, u)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_tracked_words_hold_the_lyndon_words_and_every_prefix(d, n):
    tracked = tracked_words(d, n)
    assert set(lyndon_words(d, n)) <= set(tracked)
    for w in tracked:
        assert len(w) == 1 or w[:-1] in tracked
        assert any(w == lyndon[: len(w)] for lyndon in lyndon_words(d, n))


def test_depth_four_in_three_dimensions_tracks_37_of_120_words():
    assert len(tracked_words(3, 4)) == 37
    assert word_count(3, 4) == 120


def commutator(left, right):
    total = Counter()
    for a, x in left.items():
        for b, y in right.items():
            total[a + b] += x * y
            total[b + a] -= x * y
    return {w: c for w, c in total.items() if c}


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_brackets_split_at_the_longest_lyndon_suffix_and_lead_with_their_word(d, n):
    for w in lyndon_words(d, n):
        expansion = bracket(w)
        if len(w) > 1:
            i = min(i for i in range(1, len(w)) if is_lyndon(w[i:]))
            assert expansion == commutator(bracket(w[:i]), bracket(w[i:]))
        assert expansion[w] == 1
        assert all(term >= w for term in expansion)


def test_known_brackets_are_as_written_by_hand():
    assert bracket((0,)) == {(0,): 1}
    assert bracket((0, 1)) == {(0, 1): 1, (1, 0): -1}
    assert bracket((0, 0, 1)) == {(0, 0, 1): 1, (0, 1, 0): -2, (1, 0, 0): 1}
    # [[0, 2], 1], since 2 is the longest Lyndon suffix of 02 but 1 the one of 021.
    assert bracket((0, 2, 1)) == {(0, 2, 1): 1, (2, 0, 1): -1, (1, 0, 2): -1, (1, 2, 0): 1}
