from __future__ import annotations

import subprocess
import sys

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.gateway.prices import UnknownPriceError, cost, model_price, parse_price, worst_cost
from kernel_agent.model import Price, Usage

PRICE = Price(name="p", input_usd=3.0, cached_usd=0.3, output_usd=15.0, cache_write_usd=3.75)


def test_a_models_price_and_window() -> None:
    found = model_price("claude-sonnet-4-5")
    assert found.price == Price(
        name="claude-sonnet-4-5", input_usd=3.0, cached_usd=0.3, output_usd=15.0, cache_write_usd=3.75
    )
    assert (found.context_tokens, found.max_output_tokens) == (200_000, 64_000)


def test_a_providers_prefix_may_be_written() -> None:
    assert model_price("openai/gpt-4o").price.model_copy(update={"name": "gpt-4o"}) == model_price("gpt-4o").price
    assert model_price("gpt-4o").price.cache_write_usd is None
    with pytest.raises(UnknownPriceError):
        model_price("anthropic/gpt-4o")


def test_a_tiered_price_holds_up_to_its_border() -> None:
    found = model_price("gemini/gemini-2.5-pro")
    assert (found.price.input_usd, found.context_tokens) == (1.25, 200_000)


@pytest.mark.parametrize("model", ["openai/gpt-4oo", "my/own", "text-embedding-3-small", "sample_spec"])
def test_an_unknown_price_says_how_to_give_one(model: str) -> None:
    with pytest.raises(UnknownPriceError, match="--price IN,CACHED,OUT"):
        model_price(model)


def test_a_near_model_is_suggested() -> None:
    with pytest.raises(UnknownPriceError, match=r"near ones: .*gpt-4o"):
        model_price("openai/gpt-4oo")


def test_litellm_itself_is_not_imported() -> None:
    script = (
        "import sys; from kernel_agent.gateway.prices import model_price; "
        "model_price('gpt-4o'); print('litellm' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


def test_a_price_can_be_written() -> None:
    assert parse_price("3, 0.3,15", "mine") == Price(name="mine", input_usd=3, cached_usd=0.3, output_usd=15)


@pytest.mark.parametrize("text", ["", "3", "3,4", "3,4,5,6", "a,b,c", "-1,0,0", "nan,0,0", "inf,0,0"])
def test_a_price_that_makes_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--price"):
        parse_price(text, "mine")


def test_cost_tells_cached_and_written_tokens_apart() -> None:
    usage = Usage(prompt_tokens=1000, cached_tokens=600, cache_write_tokens=100, completion_tokens=10)
    assert cost(usage, PRICE) == pytest.approx((300 * 3.0 + 600 * 0.3 + 100 * 3.75 + 10 * 15.0) / 1e6)
    plain = PRICE.model_copy(update={"cache_write_usd": None})
    assert cost(usage, plain) == pytest.approx((400 * 3.0 + 600 * 0.3 + 10 * 15.0) / 1e6)
    assert cost(Usage(), PRICE) == 0.0


def test_the_worst_cost_is_never_below_the_cost() -> None:
    for cached, written in ((0, 0), (1000, 0), (0, 1000), (500, 500)):
        usage = Usage(prompt_tokens=1000, cached_tokens=cached, cache_write_tokens=written, completion_tokens=10)
        assert worst_cost(1000, 10, PRICE) >= cost(usage, PRICE)
