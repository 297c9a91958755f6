"""What compiled kernels must not do, because numba would say so in some orders of compilation only, or not at all."""

import ast
import inspect

import pytest
from numba import types

import rftlab.sim.lanes.random
import rftlab.sim.policy.common
import rftlab.sim.policy.policy
import rftlab.sim.policy.probabilities
import rftlab.sim.policy.products
import rftlab.sim.policy.spelling
import rftlab.sim.round.common
import rftlab.sim.round.optimizer
import rftlab.sim.round.plain
import rftlab.sim.round.scores
from rftlab.sim.environments import build
from rftlab.sim.lanes.simd import LINE
from rftlab.sim.run import simulate
from rftlab.sim.setup import make_work, start_state
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of

METHODS = {"max", "min", "sum", "mean", "any", "all", "argmax", "argmin", "copy", "take"}


def test_kernels_own_no_arrays():
    simulate(run_of(DESIGNS["window"]), build(SMALL))
    modules = (rftlab.sim.round.plain, rftlab.sim.policy.products, rftlab.sim.lanes.random)
    functions = [value for module in modules for value in vars(module).values() if hasattr(value, "overloads")]
    kernels = [function for function in functions if not function.targetoptions["_nrt"]]
    assert rftlab.sim.round.plain.policy_forward in kernels and rftlab.sim.lanes.random.uniforms in kernels
    compiled = [found for kernel in kernels for found in kernel.overloads.values()]
    assert not any(isinstance(found.signature.return_type, types.Array) for found in compiled)


def test_kernels_use_no_methods_of_arrays():
    """numba compiles these as the caller is compiled, without room for arrays; whether that fails depends on what
    was compiled before."""
    policy, rounds = rftlab.sim.policy, rftlab.sim.round
    modules = (policy.policy, policy.products, policy.probabilities, policy.spelling, policy.common)
    modules += (rounds.plain, rounds.scores, rounds.common)
    nodes = [node for module in modules for node in ast.walk(ast.parse(inspect.getsource(module)))]
    used = {node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    assert "isfinite" in used and not METHODS & used


def test_python_is_told_that_it_cannot_call_an_inner_function():
    with pytest.raises(TypeError, match=r"sim\.round\.plain\.policy_forward is for compiled code"):
        rftlab.sim.round.plain.policy_forward(None, None, None, None, None)


@pytest.mark.parametrize(
    "function",
    [
        rftlab.sim.policy.spelling.softmax,
        rftlab.sim.policy.products.forward,
        rftlab.sim.policy.common.raise_correct,
        rftlab.sim.round.common.score_products,
        rftlab.sim.round.optimizer.squared_length,
    ],
)
def test_a_function_in_two_versions_has_its_documentation_and_is_for_compiled_code(function):
    assert function.__doc__ and inspect.getsourcelines(function)[0][0] == "@for_linear\n"
    with pytest.raises(TypeError, match=rf"{function.__module__}.{function.__name__} is for compiled code"):
        function(*[None] * len(inspect.signature(function).parameters))


def test_vectors_are_loaded_from_one_cache_line():
    run, world = run_of(DESIGNS["window"]), build(SMALL)
    state, work = start_state(run, world), make_work(run, world)
    arrays = [world.train.features, world.train.base_logits, state.theta, state.grad]
    arrays += [getattr(work, name) for name in ("logits", "probs", "scores", "noise", "lse", "norm", "formed")]
    assert all(array.ctypes.data % LINE == 0 for array in arrays)
