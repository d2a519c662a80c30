"""Several endpoints of one model: calls are shared out, overload lowers their number, dead endpoints are left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import (
    ChatError,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    SettingsError,
)
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.models.chat.endpoint_pool import FIRST_CALLS, EndpointPool, PooledCallsModel
from epicrisis.models.chat.endpoints.probing import ServedModel, read_served_model
from epicrisis.models.chat.layers import RateLimitedModel, RetryingModel
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.pipeline.components import describe_models
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import ModelSettings
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.faults import Fault
from tests.support.hostile import HostileServer
from tests.support.virtual_clock import get_time, make_request, run_in_virtual_time

LISTED = ServedModel(is_listed=True, window=8192)


class FakeEndpoint(ScriptedModel):
    """An endpoint that takes a second for each call, or fails as `failure` says at the time of the call."""

    def __init__(self, failure: Callable[[], EpicrisisError | None] = lambda: None, served: ServedModel = LISTED):
        super().__init__(lambda _: "yes")
        self.failure, self.served = failure, served
        self.starts: list[float] = []
        self.checks: list[float] = []
        self.in_flight = self.most_in_flight = 0

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self.starts.append(get_time())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if (error := self.failure()) is not None:
                raise error
            await asyncio.sleep(1)
            return await super().complete(request, on_delta)
        finally:
            self.in_flight -= 1

    async def identify(self) -> ServedModel:
        self.checks.append(get_time())
        error = self.failure()
        if isinstance(error, EndpointUnreachable):
            raise error
        return self.served


def make_pool(endpoints: Sequence[FakeEndpoint], calls: int = 4, patience: float = 120.0) -> PooledCallsModel:
    pool = EndpointPool(endpoints, calls, patience)
    return PooledCallsModel(pool, pool)


def fail_between(
    start: float, end: float, error: type[ChatError] = EndpointUnreachable
) -> Callable[[], ChatError | None]:
    return lambda: error("down: start it") if start <= get_time() < end else None


def run_calls(model: PooledCallsModel | RetryingModel, count: int) -> list[ChatReply | BaseException]:
    async def run() -> list[ChatReply | BaseException]:
        calls = [model.complete(make_request(f"number {number}")) for number in range(count)]
        return await asyncio.gather(*calls, return_exceptions=True)

    return run_in_virtual_time(run())


def count_errors(results: Sequence[object]) -> int:
    return sum(isinstance(result, BaseException) for result in results)


def test_pool_shares_calls_equally_within_limit() -> None:
    endpoints = [FakeEndpoint(), FakeEndpoint(), FakeEndpoint()]
    assert count_errors(run_calls(make_pool(endpoints, calls=4), 24)) == 0
    assert [len(endpoint.starts) for endpoint in endpoints] == [8, 8, 8]
    assert [endpoint.most_in_flight for endpoint in endpoints] == [4, 4, 4]


def test_pool_begins_with_few_calls_and_adds_more_with_each_reply() -> None:
    endpoints = [FakeEndpoint(), FakeEndpoint()]
    run_calls(make_pool(endpoints, calls=64), 300)
    first_second = [start for start in endpoints[0].starts if start < 1]
    assert len(first_second) == FIRST_CALLS
    assert endpoints[0].most_in_flight > 2 * FIRST_CALLS


def test_refusals_halve_calls_in_flight_once_for_each_round() -> None:
    endpoint, other = FakeEndpoint(), FakeEndpoint()
    endpoint.failure = lambda: EndpointBusy("full") if endpoint.in_flight > 4 else None
    results = run_calls(RetryingModel(make_pool([endpoint, other], calls=16), 50), 300)
    assert count_errors(results) == 0
    late = [start for start in endpoint.starts if 8 <= start < 13]
    assert len(late) >= 5 * 3, "the endpoint still gets most of the calls that it can take"
    assert len(other.starts) > len(endpoint.starts)


def test_endpoint_that_states_waiting_time_gets_no_call_until_then() -> None:
    def refuse_first() -> ChatError | None:
        if get_time() > 0:
            return None
        error = EndpointBusy("later")
        error.retry_after = 7.0
        return error

    endpoint, other = FakeEndpoint(refuse_first), FakeEndpoint()
    assert count_errors(run_calls(RetryingModel(make_pool([endpoint, other], calls=1), 2), 12)) == 0
    assert endpoint.starts[0] == 0
    assert endpoint.starts[1] >= 7
    assert len(other.starts) >= 7


def test_dead_endpoint_is_left_out_and_checked_after_growing_pauses() -> None:
    endpoint, other = FakeEndpoint(fail_between(0.5, 12)), FakeEndpoint()
    results = run_calls(RetryingModel(make_pool([endpoint, other], calls=1), 3), 40)
    assert count_errors(results) == 0
    calls_while_dead = [start for start in endpoint.starts if 0.5 <= start < 12]
    assert len(calls_while_dead) == 1
    assert [round(check - calls_while_dead[0]) for check in endpoint.checks[1:]] == [1, 3, 7, 15]
    assert any(start > 15 for start in endpoint.starts), "it takes part again"


def test_endpoint_that_is_down_at_the_start_gets_no_call() -> None:
    endpoint, other = FakeEndpoint(fail_between(0, 1e9)), FakeEndpoint()
    assert count_errors(run_calls(make_pool([endpoint, other]), 6)) == 0
    assert not endpoint.starts


def test_call_waits_while_all_endpoints_restart() -> None:
    endpoints = [FakeEndpoint(fail_between(0.5, 20)), FakeEndpoint(fail_between(0.5, 30))]
    assert count_errors(run_calls(RetryingModel(make_pool(endpoints, calls=1), 5), 6)) == 0


def test_pool_without_working_endpoint_fails_with_cure() -> None:
    endpoints = [FakeEndpoint(fail_between(0, 1e9)), FakeEndpoint(fail_between(0, 1e9))]
    (error,) = run_calls(RetryingModel(make_pool(endpoints)), 1)
    assert str(error) == "none of the 2 endpoints works. The first: down: start it (tried 2 times)"


def test_pool_whose_endpoints_stay_dead_fails_after_patience() -> None:
    endpoints = [FakeEndpoint(fail_between(2.5, 1e9)), FakeEndpoint(fail_between(2.5, 1e9))]
    model = make_pool(endpoints, calls=1, patience=60)

    async def run() -> float:
        error = ""
        while "none of the 2 endpoints works" not in error:
            try:
                await model.complete(make_request())
            except EndpointUnreachable as failure:
                error = str(failure)
        return get_time()

    assert 60 < run_in_virtual_time(run()) < 60 + 3 + 32


def test_pool_refused_for_longer_than_patience_says_for_how_long() -> None:
    def refuse() -> ChatError:
        error = EndpointBusy("quota")
        error.retry_after = 3600.0
        return error

    results = run_calls(RetryingModel(make_pool([FakeEndpoint(refuse), FakeEndpoint(refuse)]), 3), 8)
    assert count_errors(results) == 8
    assert all("refuse calls, the first for another 3" in str(result) for result in results)


def test_endpoint_that_only_fails_is_left_out() -> None:
    """Its list of models works, as that of a vLLM whose engine has died."""
    endpoint, other = FakeEndpoint(lambda: EndpointBusy("engine dead (500)")), FakeEndpoint()
    assert count_errors(run_calls(RetryingModel(make_pool([endpoint, other], calls=8), 9), 400)) == 0
    assert len([start for start in endpoint.starts if start > 10]) < 15


def test_questions_about_the_endpoint_do_not_count_as_replies() -> None:
    endpoint, other = FakeEndpoint(lambda: EndpointBusy("full")), FakeEndpoint()
    model = RetryingModel(make_pool([endpoint, other], calls=16), 50)

    async def answer(questions: range) -> None:
        for number in questions:
            await model.capabilities()
            await model.complete(make_request(f"number {number}"))

    async def run() -> None:
        await asyncio.gather(*(answer(range(first, 200, 8)) for first in range(8)))

    run_in_virtual_time(run())
    assert len(endpoint.starts) < 40


def test_call_waits_while_all_endpoints_restart_long_after_the_last_reply() -> None:
    endpoints = [FakeEndpoint(fail_between(500, 530)), FakeEndpoint(fail_between(500, 530))]
    model = RetryingModel(make_pool(endpoints, calls=4, patience=60), 5)

    async def run() -> None:
        await model.complete(make_request("first"))
        await asyncio.sleep(500)
        await model.complete(make_request("second"))

    run_in_virtual_time(run())


def test_call_that_waits_ends_when_the_pool_is_closed() -> None:
    endpoints = [FakeEndpoint(fail_between(5, 1e9)), FakeEndpoint(fail_between(5, 1e9))]
    model = RetryingModel(make_pool(endpoints), 5)

    async def run() -> float:
        await model.complete(make_request("first"))
        await asyncio.sleep(5)
        call = asyncio.create_task(model.complete(make_request("second")))
        await asyncio.sleep(10)
        await model.aclose()
        closed = get_time()
        with pytest.raises(ChatError, match="was closed"):
            await call
        return get_time() - closed

    assert run_in_virtual_time(run()) < 1


def test_calls_that_one_endpoint_rejects_are_repeated_at_another(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("right")
    with (
        HostileServer(model="m", api_key="right") as server,
        HostileServer(model="m", api_key="other") as wrong,
    ):
        settings = ModelSettings(name=f"{wrong.url},{server.url}#m", api_key_file=key)

        async def run(settings: ModelSettings) -> list[ChatReply]:
            model = add_layers(load_chat(settings, tmp_path), settings)
            try:
                return await asyncio.gather(*(model.complete(make_request(f"number {n}")) for n in range(40)))
            finally:
                await model.aclose()

        assert len(asyncio.run(run(settings))) == 40
        key.write_text("neither")
        with pytest.raises(EndpointUnreachable, match="rejects the key"):
            asyncio.run(run(settings))


def test_unexpected_error_of_a_check_ends_the_calls_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: FakeEndpoint) -> ServedModel:
        raise ZeroDivisionError

    monkeypatch.setattr(FakeEndpoint, "identify", fail)
    results = run_calls(make_pool([FakeEndpoint(), FakeEndpoint()]), 2)
    assert [type(result) for result in results] == [ZeroDivisionError, ZeroDivisionError]


def test_timeout_lowers_calls_of_endpoint() -> None:
    model = make_pool([FakeEndpoint(fail_between(0, 0.1, EndpointTimeout)), FakeEndpoint()], calls=8)
    run_calls(model, 16)
    limits = [member.limit for member in model._pool.members]
    assert limits[0] < limits[1] == 8


def test_cancelled_call_frees_its_place() -> None:
    model = make_pool([FakeEndpoint(), FakeEndpoint()], calls=1)

    async def run() -> float:
        tasks = [asyncio.create_task(model.complete(make_request())) for _ in range(8)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await model.complete(make_request())
        return get_time()

    assert run_in_virtual_time(run()) == 1.5
    assert [member.in_flight for member in model._pool.members] == [0, 0]


@pytest.mark.parametrize(
    ("served", "words"),
    [
        (ServedModel(is_listed=False, window=8192), "scripted is not among its models"),
        (ServedModel(is_listed=True, window=4096), "has a context window of 8192 tokens, scripted 4096"),
    ],
)
def test_pool_of_different_models_is_refused_with_cure(served: ServedModel, words: str) -> None:
    results = run_calls(make_pool([FakeEndpoint(), FakeEndpoint(served=served)]), 4)
    errors = [result for result in results if isinstance(result, SettingsError)]
    assert errors
    assert words in str(errors[0])
    assert str(errors[0]).endswith("or leave one of them out")


def test_endpoint_mended_after_the_start_takes_part_without_restart() -> None:
    endpoint, other = FakeEndpoint(served=ServedModel(is_listed=False)), FakeEndpoint()
    model = make_pool([other, endpoint], calls=1)

    async def run() -> None:
        await asyncio.gather(model.complete(make_request()), return_exceptions=True)
        with pytest.raises(SettingsError, match="the endpoints of the pool differ"):
            await model.complete(make_request())
        endpoint.served = LISTED
        for _ in range(60):
            await asyncio.gather(*(model.complete(make_request()) for _ in range(2)), return_exceptions=True)
            await asyncio.sleep(1)
        await model.complete(make_request())

    run_in_virtual_time(run())
    assert endpoint.starts


@pytest.mark.parametrize("first_failure", [0.0, 0.5])
def test_endpoint_that_returns_with_another_model_is_left_out_until_it_serves_the_first(first_failure: float) -> None:
    """It was down at the start, or died later."""
    endpoint, other = FakeEndpoint(fail_between(first_failure, 3)), FakeEndpoint()
    model = RetryingModel(make_pool([endpoint, other], calls=1), 3)

    async def call_until(end: float) -> None:
        while get_time() < end:
            await asyncio.gather(model.complete(make_request()), model.complete(make_request()))

    async def run() -> None:
        await call_until(1)
        endpoint.served = ServedModel(is_listed=False)
        await call_until(60)
        endpoint.served = LISTED
        await call_until(120)

    run_in_virtual_time(run())
    assert not [start for start in endpoint.starts if 3 <= start < 60]
    assert [check for check in endpoint.checks if 3 <= check < 60], "it is checked again"
    assert [start for start in endpoint.starts if start > 60]
    assert len(other.starts) > 100


def test_pool_whose_endpoints_all_return_with_another_model_fails_with_cure() -> None:
    endpoints = [FakeEndpoint(fail_between(0.5, 3)), FakeEndpoint(fail_between(0.5, 3))]
    model = make_pool(endpoints, calls=1)

    async def run() -> None:
        await model.complete(make_request())
        for endpoint in endpoints:
            endpoint.served = ServedModel(is_listed=True, window=4096)
        for _ in range(2):
            with pytest.raises(EndpointUnreachable, match="down"):
                await model.complete(make_request())
        with pytest.raises(EndpointUnreachable, match=r"none of the 2 .* differ: .* window of 8192 .* same model"):
            await model.complete(make_request())

    run_in_virtual_time(run())


def test_call_that_waits_for_the_rate_leaves_an_endpoint_that_dies() -> None:
    """Waiting calls are bound to both endpoints. None of them is sent to the one that has died."""
    endpoint, other = FakeEndpoint(fail_between(0.5, 1e9)), FakeEndpoint()
    pool = EndpointPool([endpoint, other], 8, 120.0)
    rate = RateLimitedModel(pool, 6, clock=get_time)
    model = RetryingModel(PooledCallsModel(rate, pool), 3)

    async def run() -> None:
        await asyncio.gather(*(model.complete(make_request(f"number {number}")) for number in range(24)))

    run_in_virtual_time(run())
    assert len([start for start in endpoint.starts if start > 0.5]) <= 1
    assert [member.in_flight for member in pool.members] == [0, 0]


def test_pool_is_used_by_event_loops_one_after_the_other() -> None:
    model = make_pool([FakeEndpoint(), FakeEndpoint()], calls=1)
    assert count_errors(run_calls(model, 8)) == 0
    assert count_errors(run_calls(model, 8)) == 0
    assert [member.in_flight for member in model._pool.members] == [0, 0]


def test_pool_in_two_event_loops_at_once_is_refused() -> None:
    model = make_pool([FakeEndpoint(), FakeEndpoint()])
    first = asyncio.new_event_loop()
    try:
        first.run_until_complete(model.complete(make_request()))
        (error,) = run_calls(model, 1)
        assert str(error) == "scripted and 1 more is in use by another event loop: open the model again for this one"
    finally:
        first.close()


def test_endpoint_that_refuses_the_key_for_its_list_of_models_is_not_asked(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("right")
    with HostileServer(model="m", api_key="other") as wrong:
        model = load_chat(ModelSettings(name=f"{wrong.url}#m", api_key_file=key), tmp_path)
        assert isinstance(model, OpenAICompatibleModel)

        async def identify() -> ServedModel:
            try:
                return await model.identify()
            finally:
                await model.aclose()

        with pytest.raises(EndpointRejected, match=r"rejects the key \(401\)"):
            asyncio.run(identify())


@pytest.mark.parametrize(
    ("listing", "served"),
    [
        ({"data": [{"id": "m", "max_model_len": 512}]}, ServedModel(True, 512)),
        ({"data": [{"id": "x"}]}, ServedModel(False)),
        ({"data": []}, ServedModel()),
        ({"data": [{"id": "/m.gguf", "meta": {"n_params": 7, "size": 9, "n_ctx": 5}}]}, ServedModel(False, 5, 7, 9)),
        ("nonsense", ServedModel()),
    ],
)
def test_served_model_is_read_from_list_of_models(listing: object, served: ServedModel) -> None:
    assert read_served_model(listing, "m") == served


def test_pool_satisfies_contract_of_chat_models() -> None:
    asyncio.run(check_chat_model(make_pool([FakeEndpoint(), FakeEndpoint()])))


POOL = "http://127.0.0.1:8000/v1,http://127.0.0.1:8001/v1#m"


def load_writer(name: str, **flags: object) -> ModelSettings:
    return load_settings({"models": {"writer": {"name": name}}, **flags}).models.writer


def test_model_name_with_several_urls_is_a_pool(tmp_path: Path) -> None:
    writer = load_writer(POOL)
    assert [member.name for member in writer.endpoints] == ["http://127.0.0.1:8000/v1#m", "http://127.0.0.1:8001/v1#m"]
    assert writer.most_calls == 2 * writer.concurrency
    pool = load_chat(writer, tmp_path)
    assert isinstance(pool, EndpointPool)
    assert pool.name == "m at http://127.0.0.1:8000 and 1 more"


def test_recipe_and_fingerprint_of_pool_are_those_of_its_first_endpoint(tmp_path: Path) -> None:
    pool, single = load_writer(POOL), load_writer("http://127.0.0.1:8000/v1#m")
    fingerprints = [asyncio.run(load_chat(settings, tmp_path).fingerprint()) for settings in (pool, single)]
    assert fingerprints[0] == fingerprints[1]
    recipes = [
        describe_models(load_settings({"models": {"writer": {"name": s.name}}}), ["writer"]) for s in (pool, single)
    ]
    assert recipes[0] == recipes[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("http://127.0.0.1:1/v1,http://127.0.0.1:2/v1", "name the model that all endpoints serve after the last URL"),
        ("http://127.0.0.1:1/v1,http://127.0.0.1:1/v1#m", "give each endpoint once"),
        ("http://127.0.0.1:1/v1,http://#m", "this URL cannot be read"),
    ],
)
def test_pool_that_cannot_work_is_refused(name: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_writer(name)


def test_local_only_sees_every_endpoint_of_a_pool() -> None:
    with pytest.raises(SettingsError, match=r"models\.example\.org is not this machine"):
        load_writer("http://127.0.0.1:8000/v1,http://models.example.org/v1#m", local_only=True)


def test_no_password_of_a_pool_is_shown() -> None:
    settings = load_settings({"models": {"writer": {"name": "http://a:geheim@h/v1,http://b:secret@i/v1#m"}}})
    for text in (repr(settings), settings.model_dump_json(), str(describe_models(settings, ["writer"]))):
        assert "geheim" not in text
        assert "secret" not in text


@pytest.mark.slow
def test_servers_that_throttle_and_break_answer_every_call(tmp_path: Path) -> None:
    faults = [Fault.BUSY_MS, Fault.RESET_AT_ONCE, Fault.UNAVAILABLE, Fault.CUT]
    requests = [make_request(f"number {number}", max_tokens=50) for number in range(60)]

    def repeat(body: dict[str, object]) -> str:
        return str(body["messages"][-1]["content"])  # type: ignore[index]

    with (
        HostileServer(repeat, faults=faults, rate=0.2, retry_after=0.05, model="m") as first,
        HostileServer(repeat, delay=0.01, model="m") as second,
    ):
        settings = ModelSettings(name=f"{first.url},{second.url}#m", concurrency=4, tries=20)

        async def run() -> list[ChatReply]:
            model = add_layers(load_chat(settings, tmp_path), settings)
            replies = await asyncio.gather(*map(model.complete, requests))
            await model.aclose()
            return replies

        replies = asyncio.run(run())
    assert [reply.text for reply in replies] == [request.messages[-1].content for request in requests]
    assert first.ledger.healthy
    assert second.ledger.healthy
