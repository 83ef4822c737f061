"""The readable tensor algebra, against iterated integrals by definition and the group laws."""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import level_bounds, tensor_exponential, tensor_of_brackets, variation
from roughformer import algebra
from roughformer.signatures.words import all_words, shuffle, word_count, word_index

sizes = st.tuples(st.integers(1, 3), st.integers(1, 5))
seeds = st.integers(0, 2**32)


def random_path(seed, d, length):
    return np.cumsum(np.random.default_rng(seed).normal(size=(length, d)), axis=0)


def iterated_integral(path, word):
    """∫_{u_1 < ... < u_k} dx_{w_1} ... dx_{w_k} of a piecewise-linear path, by its definition.

    The simplex splits by the segment that each u_i lies in; m of them in one segment fill 1/m! of
    its cube.
    """
    steps = np.diff(path, axis=0)
    total = 0.0
    for places in combinations_with_replacement(range(len(steps)), len(word)):
        share = math.prod(math.factorial(places.count(i)) for i in set(places))
        total += math.prod(steps[i, c] for i, c in zip(places, word, strict=True)) / share
    return total


@given(seeds, st.sampled_from([(1, 4), (2, 3), (3, 3), (2, 4)]), st.integers(1, 5))
def test_a_path_signature_is_its_iterated_integrals(seed, size, length):
    d, n = size
    path = random_path(seed, d, length)
    want = np.array([iterated_integral(path, w) for w in all_words(d, n)])
    bound = 1e-13 * level_bounds(variation(path), d, n)
    assert (np.abs(algebra.path_signature(path, n) - want) <= bound).all()


def test_the_level_two_area_of_a_square_is_one():
    square = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
    found = algebra.path_signature(square, 2)
    np.testing.assert_array_equal(found[:2], 0)
    assert found[word_index((0, 1), 2)] - found[word_index((1, 0), 2)] == 2.0


@given(seeds, sizes)
def test_the_product_is_associative_and_has_inverses(seed, size):
    d, n = size
    a, b, c = np.random.default_rng(seed).normal(size=(3, word_count(d, n)))

    def mul(x, y):
        return algebra.multiply(x, y, d, n)

    np.testing.assert_allclose(mul(mul(a, b), c), mul(a, mul(b, c)), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(mul(a, algebra.inverse(a, d, n)), 0, atol=1e-7)
    np.testing.assert_allclose(mul(algebra.inverse(a, d, n), a), 0, atol=1e-7)


@given(seeds, sizes)
def test_the_product_is_the_one_of_words(seed, size):
    d, n = size[0], min(size[1], 3)
    a, b = np.random.default_rng(seed).normal(size=(2, word_count(d, n)))
    found = algebra.multiply(a, b, d, n)
    for w in all_words(d, n):
        want = a[word_index(w, d)] + b[word_index(w, d)]
        for i in range(1, len(w)):
            want += a[word_index(w[:i], d)] * b[word_index(w[i:], d)]
        assert found[word_index(w, d)] == pytest.approx(want, rel=1e-12, abs=1e-12)


@given(seeds, sizes)
def test_a_straight_line_has_the_same_signature_in_any_number_of_pieces(seed, size):
    d, n = size
    x = np.random.default_rng(seed).normal(size=d)
    whole = algebra.exponential(x, d, n)
    pieces = algebra.path_signature(np.array([0.0, 0.2, 0.7, 1.0])[:, None] * x, n)
    np.testing.assert_allclose(pieces, whole, rtol=1e-12, atol=1e-13)
    assert whole[word_index((0,) * n, d)] == pytest.approx(x[0] ** n / math.factorial(n))


@given(seeds, sizes, st.integers(2, 6))
def test_exp_and_log_are_inverse_to_each_other(seed, size, length):
    d, n = size
    path = random_path(seed, d, length)
    signature = algebra.path_signature(path, n)
    log = algebra.logarithm(signature, d, n)
    bound = 1e-12 * level_bounds(variation(path), d, n)
    assert (np.abs(tensor_exponential(log, d, n) - signature) <= bound * 50).all()
    np.testing.assert_allclose(log[:d], path[-1] - path[0], rtol=1e-12, atol=1e-12)


@given(seeds, sizes, st.integers(2, 6))
def test_bracket_coordinates_rebuild_the_whole_logarithm(seed, size, length):
    d, n = size
    path = random_path(seed, d, length)
    log = algebra.logarithm(algebra.path_signature(path, n), d, n)
    rebuilt = tensor_of_brackets(algebra.lyndon_brackets(log, d, n), d, n)
    bound = 1e-12 * math.factorial(n) * level_bounds(variation(path), d, n)
    assert (np.abs(rebuilt - log) <= bound).all()
    np.testing.assert_allclose(
        algebra.lyndon_projection(rebuilt, d, n),
        algebra.lyndon_projection(log, d, n),
        atol=bound.max(),
    )


@given(seeds, sizes, st.integers(2, 6))
def test_the_reversed_path_has_the_inverse_signature(seed, size, length):
    d, n = size
    path = random_path(seed, d, length)
    forth, back = algebra.path_signature(path, n), algebra.path_signature(path[::-1], n)
    bound = 1e-12 * level_bounds(2 * variation(path), d, n)
    assert (np.abs(algebra.inverse(forth, d, n) - back) <= bound).all()


@given(seeds, st.sampled_from([(2, 4), (3, 3)]), st.integers(2, 6))
def test_products_of_coordinates_are_shuffles(seed, size, length):
    d, n = size
    path = random_path(seed, d, length)
    s = algebra.path_signature(path, n)
    bound = level_bounds(2 * variation(path), d, n)
    for u in all_words(d, n - 1):
        for v in all_words(d, n - len(u)):
            terms = shuffle(u, v)
            found = sum(c * s[word_index(w, d)] for w, c in terms.items())
            limit = 1e-12 * bound[word_index(u + v, d)]
            assert abs(found - s[word_index(u, d)] * s[word_index(v, d)]) <= limit


def test_a_batch_of_elements_is_worked_on_at_once():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4, 5, word_count(2, 3)))
    for f in (algebra.inverse, algebra.logarithm, algebra.lyndon_brackets):
        np.testing.assert_allclose(f(a, 2, 3)[1, 2], f(a[1, 2], 2, 3), rtol=1e-12)
    np.testing.assert_array_equal(
        algebra.multiply(a, b, 2, 3)[1, 2], algebra.multiply(a[1, 2], b[1, 2], 2, 3)
    )


def test_levels_are_views_and_a_wrong_size_is_refused_with_both_numbers():
    x = np.arange(14.0)
    parts = algebra.levels(x, 2, 3)
    assert [len(p) for p in parts] == [2, 4, 8]
    assert all(p.base is not None for p in parts)
    with pytest.raises(ValueError, match=r"expected 14 words for d=2, n=3, got 13"):
        algebra.levels(x[:13], 2, 3)


def test_one_point_and_no_depth_give_the_empty_answers():
    np.testing.assert_array_equal(algebra.path_signature(np.ones((1, 2)), 3), np.zeros(14))
    assert algebra.exponential(np.ones(2), 2, 0).shape == (0,)
