"""Forests of decision trees as tensors: grown by scikit-learn, kept and run without it."""

from typing import Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn


class ForestShape(BaseModel):
    """Sizes of a forest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_trees: int
    n_nodes: int
    depth: int
    n_leaf_values: int
    n_outputs: int


class Forest(nn.Module):
    """The sum over all trees of the values of the leaves that features ``(B, F)`` fall into.

    Nodes of all trees stand in one table: a node compares one feature with a threshold and goes to
    ``left`` where it is not greater, else to the node after ``left``. A leaf goes to itself. Equal
    values of leaves (a class, mostly) are kept once.
    """

    feature: Tensor  # (n_nodes,)
    threshold: Tensor
    left: Tensor
    leaf: Tensor  # (n_nodes,) row of ``values``
    roots: Tensor  # (n_trees,)
    values: Tensor  # (n_leaf_values, n_outputs)

    def __init__(self, shape: ForestShape) -> None:
        """Empty, to be loaded."""
        super().__init__()
        self.shape = shape
        for name in ("feature", "left", "leaf"):
            self.register_buffer(name, torch.zeros(shape.n_nodes, dtype=torch.int32))
        self.register_buffer("threshold", torch.zeros(shape.n_nodes))
        self.register_buffer("roots", torch.zeros(shape.n_trees, dtype=torch.int32))
        self.register_buffer("values", torch.zeros(shape.n_leaf_values, shape.n_outputs))

    def forward(self, features: Tensor) -> Tensor:
        """``(B, n_outputs)``."""
        node = self.roots.long().unsqueeze(0).expand(features.shape[0], -1)
        for _ in range(self.shape.depth):
            right = features.gather(1, self.feature[node].long()) > self.threshold[node]
            # A leaf's threshold is infinite: it goes "left", to itself.
            node = self.left[node].long() + right.to(node.dtype)
        return self.values[self.leaf[node].long()].sum(dim=1)

    def placed(self, columns: Tensor) -> Self:
        """Change to a table in which its features stand in these columns."""
        self.feature.copy_(columns[self.feature.long()])
        return self

    @classmethod
    def of(cls, trees: list[dict[str, Any]]) -> Self:
        """From trees as arrays: ``feature``, ``threshold``, ``left``, ``right`` (-1 in a leaf) and
        ``values (n, n_outputs)``.
        """
        columns: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "left")}
        values, roots, total, depth = [], [], 0, 0
        for tree in trees:
            order, level = _breadth_first(tree["left"], tree["right"])
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            inner = tree["left"][order] >= 0
            feature = np.where(inner, tree["feature"][order], 0)
            columns["feature"].append(feature)
            columns["threshold"].append(np.where(inner, _below(tree["threshold"][order]), np.inf))
            own = np.arange(len(order))
            left = np.where(inner, place[tree["left"][order]], own)
            columns["left"].append(left + total)
            values.append(np.asarray(tree["values"], np.float32)[order])
            roots.append(total)
            total += len(order)
            depth = max(depth, level)
        every = np.concatenate(values)
        first, leaf = _distinct(every)
        unique = every[first]
        shape = ForestShape(
            n_trees=len(trees), n_nodes=total, depth=depth, n_leaf_values=len(unique),
            n_outputs=unique.shape[1],
        )  # fmt: skip
        forest = cls(shape)
        for name, parts in columns.items():
            own_buffer = getattr(forest, name)
            own_buffer.copy_(torch.from_numpy(np.concatenate(parts)))
        forest.leaf.copy_(torch.from_numpy(leaf.reshape(-1)))
        forest.roots.copy_(torch.tensor(roots))
        forest.values.copy_(torch.from_numpy(unique))
        return forest

    @classmethod
    def of_extra_trees(cls, model: Any, n_outputs: int) -> Self:
        """Of scikit-learn's ``ExtraTrees``: the mean over its trees."""
        trees = []
        for estimator in model.estimators_:
            tree = estimator.tree_
            values = tree.value[:, 0, :] if tree.value.shape[1] == 1 else tree.value[:, :, 0]
            if hasattr(model, "classes_"):
                spread = np.zeros((len(values), n_outputs))
                spread[:, model.classes_] = values / values.sum(axis=1, keepdims=True)
                values = spread
            inner = tree.children_left[:, None] >= 0
            trees.append(
                {
                    "feature": tree.feature,
                    "threshold": tree.threshold,
                    "left": tree.children_left,
                    "right": tree.children_right,
                    "values": np.where(inner, 0.0, values / len(model.estimators_)),
                }
            )
        return cls.of(trees)

    @classmethod
    def of_boosting(cls, models: list[Any], n_outputs: int) -> Self:
        """Of scikit-learn's ``HistGradientBoosting``: the mean of their raw predictions. Of two
        classes the second has them, with the first at 0.
        """
        raw = np.ravel(models[0]._baseline_prediction)
        baseline = np.zeros((1, n_outputs))
        baseline[0, -len(raw) :] = raw
        leaf = np.array([-1])
        trees = [
            {"feature": leaf, "threshold": np.zeros(1), "left": leaf, "right": leaf,
             "values": baseline},
        ]  # fmt: skip
        for round_ in (found for model in models for found in model._predictors):
            for k, predictor in enumerate(round_):
                nodes = predictor.nodes
                inner = nodes["is_leaf"] == 0
                column = k if len(round_) > 1 or n_outputs == 1 else 1
                values = np.zeros((len(nodes), n_outputs))
                values[:, column] = np.where(inner, 0.0, nodes["value"] / len(models))
                left = np.where(inner, nodes["left"].astype(np.int64), -1)
                right = np.where(inner, nodes["right"].astype(np.int64), -1)
                trees.append(
                    {
                        "feature": nodes["feature_idx"].astype(np.int64),
                        "threshold": nodes["num_threshold"],
                        "left": left,
                        "right": right,
                        "values": values,
                    }
                )
        return cls.of(trees)


def _below(threshold: Any) -> Any:
    """The largest float32 that is not above: features are float32, so comparisons stay the same."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


def _distinct(rows: Any) -> tuple[Any, Any]:
    """Where each distinct row stands first, and which of them each row is. Rows are told apart by
    a 64-bit hash, which is much faster than sorting them.
    """
    factors = np.random.default_rng(0).integers(1, 2**63, rows.shape[1], np.uint64) | np.uint64(1)
    words = (rows + np.float32(0)).view(np.uint32).astype(np.uint64)  # one zero, not two
    mixed = (words + np.uint64(1)) * factors
    mixed ^= mixed >> np.uint64(29)
    _, first, which = np.unique(mixed.sum(axis=1), return_index=True, return_inverse=True)
    return first, which.reshape(-1)


def _breadth_first(left: Any, right: Any) -> tuple[Any, int]:
    """Nodes so that children stand side by side, and the number of levels below the root."""
    level, order, depth = np.array([0]), [np.array([0])], 0
    while True:
        inner = level[left[level] >= 0]
        if len(inner) == 0:
            return np.concatenate(order), depth
        level = np.stack([left[inner], right[inner]], axis=1).reshape(-1).astype(np.int64)
        order.append(level)
        depth += 1
