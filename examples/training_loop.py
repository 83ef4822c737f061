"""The Rough Transformer in your own training loop: ragged, irregular, incomplete series.

    python examples/training_loop.py

Plain PyTorch: a Dataset, a collate function, a loop. Which of two noisy rhythms a series has is
learnt from 20 to 200 samples at random times, a fifth of them missing.
"""

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import roughformer as rf


class Rhythms(Dataset):
    """Series of different lengths, each with its own times; NaN = not observed."""

    def __init__(self, n: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.series = []
        for _ in range(n):
            label = int(torch.randint(2, (), generator=draw))
            length = int(torch.randint(20, 200, (), generator=draw))
            times = 10 * torch.rand(length, generator=draw, dtype=torch.float64).sort().values
            noise = torch.randn(length, 2, generator=draw)
            values = torch.sin((3 + label) * times)[:, None].float() + 0.3 * noise
            values[torch.rand(values.shape, generator=draw) < 0.2] = torch.nan
            self.series.append((values, times, label))

    def __len__(self) -> int:
        return len(self.series)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.series[i]


def collate(items):
    """A batch of padded tensors; what stands behind a series' length is never looked at."""
    values, times, labels = zip(*items, strict=True)
    return {
        "values": pad_sequence(values, batch_first=True),
        "times": pad_sequence(times, batch_first=True),
        "lengths": torch.tensor([len(x) for x in values]),
        "labels": torch.tensor(labels),
    }


def main(epochs: int = 8) -> float:
    torch.manual_seed(0)
    train = DataLoader(Rhythms(400, seed=0), 32, shuffle=True, collate_fn=collate)
    test = DataLoader(Rhythms(200, seed=1), 200, collate_fn=collate)
    tokens = rf.TokenConfig(windows=12, depth=2, clock=4)
    model = rf.RFormer(n_channels=2, n_outputs=2, tokens=tokens, d_model=32)
    model.fit_scaling(train)  # spans, levels and spreads of the training series
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    accuracy = 0.0
    for epoch in range(epochs):
        model.train()
        for batch in train:
            logits = model(batch["values"], batch["times"], batch["lengths"])
            loss = torch.nn.functional.cross_entropy(logits, batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            (batch,) = test
            logits = model(batch["values"], batch["times"], batch["lengths"])
        accuracy = float((logits.argmax(dim=1) == batch["labels"]).float().mean())
        print(f"epoch {epoch + 1}: loss {loss:.3f}, accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
