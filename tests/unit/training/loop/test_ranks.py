"""A process alone, and what each of several takes."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from torch import nn

from training.errors import RankLostError
from training.loop.ranks import TrainingRanks, is_one_of_many


def test_alone_every_question_answers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    ranks = TrainingRanks.join("cpu")
    assert ranks.is_first
    assert ranks.sum([1.5, 2.0]) == [1.5, 2.0]
    assert ranks.from_first("mine") == "mine"
    assert ranks.share_of([1, 2, 3]) == [1, 2, 3]
    ranks.check_same({"text": 1})
    model = nn.Linear(2, 2)
    ranks.sum_gradients(model.parameters())
    assert model.weight.grad is None
    with ranks.first_alone():
        ranks.wait()
    before = torch.get_rng_state()
    ranks.seed(1, 5)
    assert torch.equal(torch.get_rng_state(), before)
    ranks.leave()


def test_shares_are_disjoint_and_whole_however_many_batches_there_are() -> None:
    for count in range(8):
        shares = [TrainingRanks(rank, 3).share_of(list(range(count))) for rank in range(3)]
        assert sorted(batch for share in shares for batch in share) == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_dropout_differs_between_ranks_and_steps_and_is_the_same_again() -> None:
    def draw(rank: int, step: int) -> float:
        TrainingRanks(rank, 4).seed(1, step)
        return float(torch.rand(1))

    with torch.random.fork_rng():
        drawn = {(rank, step): draw(rank, step) for rank in (1, 2, 3) for step in (7, 8)}
        assert len(set(drawn.values())) == 6
        assert drawn == {key: draw(*key) for key in drawn}


@pytest.mark.parametrize(("size", "many"), [("1", False), ("2", True)])
def test_one_of_many_has_torchruns_environment(
    monkeypatch: pytest.MonkeyPatch, size: str, many: bool
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert not is_one_of_many()
    monkeypatch.setenv("MASTER_PORT", "1")
    assert is_one_of_many() == many


def test_each_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert TrainingRanks(3, 4).device("cuda") == "cuda:3"
    assert TrainingRanks(3, 4).device("cpu") == "cpu"
    assert TrainingRanks().device("cuda") == "cuda"


def test_sigterm_to_one_of_several_is_reported_and_ends_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    ranks = TrainingRanks(1, 2)
    ranks.sum = lambda values: values  # type: ignore[method-assign]
    with ranks.heeding_sigterm() as asked_to_end:
        assert not asked_to_end()
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked_to_end()
    assert signal.getsignal(signal.SIGTERM) is before
    with TrainingRanks().heeding_sigterm():
        assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_that_comes_when_a_sum_is_read_is_of_a_lost_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Queued:
        def __float__(self) -> float:
            raise RuntimeError("NCCL communicator was aborted")

    monkeypatch.setattr("training.loop.ranks.dist.all_reduce", lambda total: None)
    monkeypatch.setattr(torch, "tensor", lambda values, **options: [Queued() for _ in values])
    with pytest.raises(RankLostError, match=r"another process of this run has ended \(NCCL"):
        TrainingRanks(0, 2).sum([1.0])
