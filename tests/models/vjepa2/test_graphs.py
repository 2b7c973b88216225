import pytest
import torch
from vjepa2_worlds import small_world

from mstar_plan.models.vjepa2.graphs import GraphCache


class Recorder:
    """Captures as CUDA does: the function is run once, later only its numbers are made anew."""

    def __init__(self, fails=False):
        self.captured, self.fails = 0, fails

    def __call__(self, function, x):
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.captured += 1
        return function


def double(x):
    return 2 * x


def test_without_captures_everything_is_eager():
    cache = GraphCache.on(torch.device("cpu"))
    assert [cache.run("a", double, torch.tensor(i)).item() for i in (1, 2, 3)] == [2, 4, 6]


def test_the_second_call_is_captured_and_later_ones_replay():
    capture = Recorder()
    cache = GraphCache(capture)
    assert [cache.run("a", double, torch.tensor(i)).item() for i in (1, 2, 3, 4)] == [2, 4, 6, 8]
    assert capture.captured == 1


def test_the_graph_that_was_not_used_for_longest_goes_first():
    capture = Recorder()
    cache = GraphCache(capture, most=2)
    for key in ("a", "a", "b", "a", "c", "a", "b"):
        cache.run(key, double, torch.tensor(1))
    assert capture.captured == 1  # a was kept, b was forgotten before it came again


def test_where_a_capture_fails_it_stays_eager(caplog):
    cache = GraphCache(Recorder(fails=True))
    assert [cache.run("a", double, torch.tensor(i)).item() for i in (1, 2, 3)] == [2, 4, 6]
    assert len([record for record in caplog.records if "stays eager" in record.message]) == 1


@torch.inference_mode()
def test_a_rollout_captures_each_step_once_it_comes_again():
    model = small_world(state="none")
    rollout = model._rollout()
    rollout.rows = 3
    capture = Recorder()
    rollout.graphs = GraphCache(capture)
    latent, _, start = model.begin(torch.randn(1, 1, 16, 24), None, None, 5, 2)
    actions = torch.randn(1, 5, 7)
    seen = []
    for _ in range(3):
        z, cache = latent, start
        for _ in range(2):
            z, _, cache = model.predict(z, None, actions, cache)
        seen.append(z)
    assert capture.captured == 4  # two steps of two chunks
    assert torch.equal(seen[0], seen[2])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@torch.inference_mode()
def test_graphs_give_what_eager_gives():
    model = small_world(state="none").cuda()
    latent, _, start = model.begin(torch.randn(1, 1, 16, 24, device="cuda"), None, None, 5, 2)
    actions = torch.randn(1, 5, 7, device="cuda")
    seen = []
    for _ in range(3):
        z, cache = latent, start
        for _ in range(2):
            z, _, cache = model.predict(z, None, actions, cache)
        seen.append(z.clone())
    assert torch.allclose(seen[0], seen[2], atol=1e-5)
