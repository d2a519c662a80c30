"""Endpoints that do not take all of a request, and those that are reached in another way: Azure, Bedrock."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import subprocess
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit

import pytest

from epicrisis.core.errors import EndpointRejected, EpicrisisError, ModelMissing, SettingsError
from epicrisis.core.protocols import ANY_OBJECT, ChatReply, ChatRequest, Message
from epicrisis.models.chat.endpoints.endpoint import Endpoint as Address
from epicrisis.models.chat.endpoints.endpoint import parse_endpoint
from epicrisis.models.chat.endpoints.failures import parse_error_body
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel, build_body, find_rejected_parameter
from tests.support.hostile import HostileServer
from tests.support.loopback import USAGE, Endpoint, Scripted, completion, run_in_thread

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
REQUEST = ChatRequest((Message("user", "The patient's temperature is 39."),), max_tokens=50)


def write_json(_: object) -> str:
    return '{"a": 1}'


async def complete_concurrently(model: OpenAICompatibleModel, request: ChatRequest, times: int) -> list[ChatReply]:
    try:
        return await asyncio.gather(*(model.complete(request) for _ in range(times)))
    finally:
        await model.aclose()


def ask(url: str | Address, request: ChatRequest = REQUEST, times: int = 1, **settings: Any) -> list[ChatReply]:
    return asyncio.run(
        complete_concurrently(OpenAICompatibleModel(url, "m", timeout_seconds=5, **settings), request, times)
    )


# -- any JSON object ------------------------------------------------------------------------------------------------


def test_schema_of_any_object_is_sent_as_json_mode() -> None:
    """As BriefContext's notebooks ask GPT-3.5 (errata C12); a strict schema would need properties."""
    sent = build_body(replace(REQUEST, schema=ANY_OBJECT), "m", {}, frozenset(), stream=False)
    assert sent["response_format"] == {"type": "json_object"}
    sent = build_body(replace(REQUEST, schema=SCHEMA), "m", {}, frozenset(), stream=False)
    assert sent["response_format"]["type"] == "json_schema"


# -- parameters -----------------------------------------------------------------------------------------------------


def test_rejected_parameters_are_omitted_and_noted() -> None:
    refuses = {"max_tokens", "temperature", "top_p", "seed", "response_format"}
    request = replace(REQUEST, temperature=0.5, top_p=0.5, schema=SCHEMA)
    with HostileServer(write_json, refuses=refuses, keep_bodies=True) as server:
        (first,) = ask(server.url, request)
        bodies = [set(received.body) for received in server.received if received.path.endswith("completions")]
        ledger = server.ledger
    assert bodies[-1] == {"model", "messages", "max_completion_tokens"}
    assert (ledger.refused, ledger.healthy) == (5, 1)
    assert (first.usage.calls, first.usage.failed_calls, first.usage.uncounted_calls) == (6, 5, 0)
    assert first.notes == (
        "the endpoint accepts no JSON schema: the request was sent without one",
        "the endpoint accepts no seed: the same request may get another answer",
        "the endpoint accepts no temperature: it used its own",
        "the endpoint accepts no top_p: it used its own",
    )


@pytest.mark.slow
def test_rejected_parameters_are_remembered_across_concurrent_calls() -> None:
    with HostileServer(write_json, refuses={"max_tokens", "seed"}, delay=0.02) as server:

        async def run() -> tuple[list[ChatReply], list[ChatReply]]:
            model = OpenAICompatibleModel(server.url, "m", timeout_seconds=10)
            together = await asyncio.gather(*(model.complete(REQUEST) for _ in range(64)))
            return together, await complete_concurrently(model, REQUEST, 1)

        together, after = asyncio.run(run())
        ledger = server.ledger
    assert ledger.healthy == len(together) + len(after) == 65
    assert sum(reply.usage.failed_calls for reply in together) == ledger.refused
    assert after[0].usage.calls == 1
    assert all(len(reply.notes) == 1 for reply in (*together, *after))


def test_rejected_streaming_falls_back_to_whole_reply() -> None:
    deltas: list[str | None] = []
    with HostileServer(write_json, refuses={"stream"}) as server:

        async def run() -> ChatReply:
            model = OpenAICompatibleModel(server.url, "m", timeout_seconds=5)
            reply = await model.complete(REQUEST, deltas.append)
            await model.aclose()
            return reply

        reply = asyncio.run(run())
    assert (deltas, reply.text, reply.notes) == (['{"a": 1}'], '{"a": 1}', ())


def test_streaming_request_with_json_reply_returns_text(endpoint: Endpoint) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
    deltas: list[str | None] = []

    async def run() -> ChatReply:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5)
        reply = await model.complete(REQUEST, deltas.append)
        await model.aclose()
        return reply

    assert (asyncio.run(run()).text, deltas) == ("Yes.", ["Yes."])


REFUSALS: list[tuple[int, object, str | None]] = [
    (
        400,
        {
            "message": "Unsupported value: 'temperature' does not support 0.0 with this model.",
            "param": "temperature",
            "code": "unsupported_value",
        },
        "temperature",
    ),
    (400, {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}, "max_tokens"),
    (400, {"message": "Unrecognized request argument supplied: seed"}, "seed"),
    (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs"}]}, "seed"),
    (400, [{"error": {"message": 'Unknown name "seed": Cannot find field.', "code": 400}}], "seed"),
    (400, {"message": "`temperature` and `top_p` cannot both be specified for this model."}, "top_p"),
    (400, {"message": "stream_options: Extra inputs are not permitted"}, "stream_options"),
    (400, {"message": "[{'loc': ('body', 'seed'), 'msg': 'Extra inputs are not permitted'}]", "code": 400}, "seed"),
    (400, {"message": "Invalid schema for response_format 'reply'"}, "response_format"),
    (400, {"message": "failed to parse grammar"}, "response_format"),
    # A value that is wrong is not a parameter that is not taken, and a patient's temperature is neither.
    (400, {"message": "max_tokens must be positive", "param": "max_tokens"}, None),
    (
        400,
        {"message": "max_tokens is too large: 50. This model supports at most 16 tokens", "param": "max_tokens"},
        None,
    ),
    (400, {"message": "not allowed: The patient's temperature is 39."}, None),
    (400, {"message": "Unknown model", "param": "model", "code": "unsupported_value"}, None),
    (400, {"message": "'max_tokens' is too large. This model's maximum context length is 16 tokens"}, None),
    (500, {"message": "Unsupported parameter: 'seed'"}, None),
    (403, {"message": "Unsupported parameter: 'seed'"}, None),
]


@pytest.mark.parametrize(("status", "body", "parameter"), REFUSALS)
def test_find_rejected_parameter_returns_parameter_of_error_body(
    status: int, body: object, parameter: str | None
) -> None:
    sent = build_body(replace(REQUEST, schema=SCHEMA), "m", {}, frozenset(), stream=True)
    assert find_rejected_parameter(parse_error_body(body, status), sent) == parameter


def test_rejected_extra_parameter_raises_endpoint_rejected(endpoint: Endpoint) -> None:
    refusal = {"error": {"message": "Unsupported value: 'seed'", "param": "seed", "code": "unsupported_value"}}
    endpoint.script["/v1/chat/completions"] = [Scripted(refusal, 400)]
    with pytest.raises(EndpointRejected, match="Unsupported value"):
        ask(endpoint.url, extra={"seed": 5})
    with pytest.raises(EndpointRejected, match="Unsupported value"):
        ask(endpoint.url, replace(REQUEST, extra={"seed": 6}), extra={"seed": 5})
    assert [body["seed"] for body in endpoint.bodies("/v1/chat/completions")] == [5, 6]


@pytest.mark.parametrize(
    ("extra", "refusal"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        ({"top_logprobs": 20, "logprobs": True}, "top_logprobs is greater than max allowed: 5"),
        ({"stream_options": {}}, "Unknown parameter: 'stream_options'"),
    ],
)
@pytest.mark.parametrize("options", [(), ("A", "B")])
def test_rejected_extra_parameter_is_not_retried(
    endpoint: Endpoint, extra: dict[str, Any], refusal: str, options: tuple[str, ...]
) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted({"error": {"message": refusal}}, 400)]
    with pytest.raises(EndpointRejected) as caught:
        ask(endpoint.url, replace(REQUEST, options=options), extra=extra)
    assert (len(endpoint.asked), caught.value.usage.calls) == (1, 1)


def test_declared_json_schema_support_overrides_detection(endpoint: Endpoint) -> None:
    refusal = {"error": {"message": "no json_schema here"}}
    request = replace(REQUEST, schema=SCHEMA)
    endpoint.script["/v1/chat/completions"] = [Scripted(refusal, 400)]
    with pytest.raises(EndpointRejected, match="no json_schema here"):
        ask(endpoint.url, request, json_schema=True)
    endpoint.script["/v1/chat/completions"] = [Scripted(completion('{"a": 1}'))]
    (reply,) = ask(endpoint.url, request, json_schema=False)
    assert "response_format" not in endpoint.bodies("/v1/chat/completions")[-1]
    assert (reply.conforms, reply.usage.calls) == (True, 1)
    assert reply.notes == ("the endpoint accepts no JSON schema: the request was sent without one",)


@pytest.mark.parametrize(
    ("text", "conforms"),
    [
        ('{"a": 1}', True),
        (' {"a": 1}\n', True),
        ('{"a": "1"}', False),
        ('{"a": 1, "b": 2}', False),
        ('{"a": NaN}', False),
        ('{"a": 1', False),
        ('Here: {"a": 1}', False),
        ("[" * 5000, False),
        ("1" * 5000, False),
    ],
)
def test_reply_conforms_reports_schema_validity(endpoint: Endpoint, text: str, conforms: bool) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(completion(text, usage=USAGE | {"completion_tokens": 40}))]
    (reply,) = ask(endpoint.url, replace(REQUEST, schema=SCHEMA, max_tokens=1000))
    assert (reply.text, reply.conforms) == (text, conforms)
    assert ask(endpoint.url, replace(REQUEST, max_tokens=1000))[0].conforms is None


def test_schema_with_remote_reference_is_refused_without_request(endpoint: Endpoint) -> None:
    with pytest.raises(ValueError, match="nor a reference within the schema"):
        ask(endpoint.url, replace(REQUEST, schema={"$ref": f"{endpoint.url}/schema"}))
    assert endpoint.asked == []


# -- fingerprints ---------------------------------------------------------------------------------------------------


def fingerprint(address: str, **settings: Any) -> str:
    async def run() -> str:
        model = OpenAICompatibleModel(address, **settings)
        try:
            return await model.fingerprint()
        finally:
            await model.aclose()

    return asyncio.run(run())


def test_fingerprint_covers_reply_settings_and_excludes_secrets(endpoint: Endpoint) -> None:
    plain = fingerprint("http://models.example/v1#m")
    assert json.loads(plain) == {"kind": "openai", "endpoint": "http://models.example/v1", "model": "m"}
    secret = fingerprint(
        "http://me:s3cret@models.example/v1?code=s3cret#m", api_key=lambda: "s3cret", timeout_seconds=1
    )
    assert secret == plain
    extra = {"gateway_key": "s3cret"}
    others = [
        fingerprint("http://models.example/v1#n"),
        fingerprint("http://models.example:81/v1#m"),
        fingerprint("http://models.example/v1?api-version=1#m"),
        fingerprint("http://models.example/v1#m", extra=extra),
        fingerprint("http://models.example/v1#m", extra={"top_k": 1}),
        fingerprint("http://models.example/v1#m", json_schema=False),
    ]
    assert len({plain, *others}) == 7
    assert "s3cret" not in str(others)
    endpoint.script["/v1/models"] = [Scripted({"data": [{"id": "first"}]})]
    assert json.loads(fingerprint(endpoint.url))["model"] == "first"


# -- other ways in --------------------------------------------------------------------------------------------------


def test_azure_deployment_sends_api_version_and_api_key_header(endpoint: Endpoint) -> None:
    path = "/openai/deployments/mine/chat/completions?api-version=2024-10-21"
    endpoint.script[path] = [Scripted(completion("Yes.", usage=USAGE))]
    url = f"{endpoint.url}/openai/deployments/mine?api-version=2024-10-21"

    async def run() -> ChatReply:
        model = OpenAICompatibleModel(url, api_key=lambda: "k3y", timeout_seconds=5)
        reply = await model.complete(REQUEST)
        await model.aclose()
        return reply

    assert asyncio.run(run()).text == "Yes."
    [(sent_path, body, headers)] = endpoint.asked
    assert (sent_path, body["model"], headers["api-key"]) == (path, "mine", "k3y")
    assert "authorization" not in headers


def test_azure_v1_path_sends_api_key_header(endpoint: Endpoint) -> None:
    endpoint.script["/openai/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
    address = replace(parse_endpoint("https://mine.openai.azure.com/openai/v1#d"), base_url=f"{endpoint.url}/openai/v1")
    ask(address, api_key=lambda: "k3y")
    [(_, body, headers)] = endpoint.asked
    assert (body["model"], headers["api-key"]) == ("m", "k3y")


def test_login_in_address_is_sent_as_basic_authorization(endpoint: Endpoint) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
    host = urlsplit(endpoint.url).netloc
    ask(f"http://me:p%40ss@{host}/v1#m", api_key=lambda: "k3y")
    [(path, _, headers)] = endpoint.asked
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Basic bWU6cEBzcw==")


def test_request_headers_exclude_environment_and_machine(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "AZURE_OPENAI_AD_TOKEN"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: s3cret\nAuthorization: Bearer s3cret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://192.0.2.1/v1")
    endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
    ask(endpoint.url)
    headers = endpoint.asked[0][2]
    assert "s3cret" not in str(headers)
    names = {"host", "accept", "accept-encoding", "user-agent", "connection", "authorization"}
    assert set(headers) == names | {"content-length", "content-type"}
    assert (headers["accept-encoding"], headers["user-agent"]) == ("identity", "epicrisis")


@pytest.mark.parametrize("status", [301, 307, 308])
def test_redirect_is_not_followed_and_raises_endpoint_rejected(endpoint: Endpoint, status: int) -> None:
    place = {"Location": f"{endpoint.url}/elsewhere?key=s3cret"}
    endpoint.script["/v1/chat/completions"] = [Scripted("", status, headers=place)]
    with pytest.raises(EndpointRejected, match=r"redirects to http://127\.0\.0\.1 .*use that address") as caught:
        ask(endpoint.url)
    assert [path for path, _, _ in endpoint.asked] == ["/v1/chat/completions"]
    assert "s3cret" not in caught.value.message


# -- Bedrock --------------------------------------------------------------------------------------------------------


def bedrock(endpoint: Endpoint) -> Address:
    """Return Amazon's address redirected to the local endpoint."""
    endpoint.script["/openai/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
    address = parse_endpoint("bedrock://us-east-1#m")
    return replace(address, base_url=f"{endpoint.url}/openai/v1", local=True)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set AWS credentials in the environment only."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEDROCK_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def signature(endpoint: Endpoint, raw: bytes) -> str:
    """Compute AWS's signature version 4 of the received request, as the documentation defines it."""
    path, _, headers = endpoint.asked[0]
    credential, signed, _ = headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(", ")
    names = signed.removeprefix("SignedHeaders=").split(";")
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in names]
    canonical = "\n".join(["POST", path, "", *lines, "", ";".join(names), hashlib.sha256(raw).hexdigest()])
    _, day, region, service, end = credential.removeprefix("Credential=").split("/")
    scope = f"{day}/{region}/{service}/{end}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = b"AWS4s3cret"
    for part in (day, region, service, end):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    assert scope.endswith("/us-east-1/bedrock/aws4_request")
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@pytest.mark.slow
@pytest.mark.usefixtures("aws")
def test_bedrock_request_is_signed_with_aws_credentials(endpoint: Endpoint) -> None:
    if find_spec("botocore") is None:
        pytest.skip("needs the extra bedrock")
    (reply,) = ask(bedrock(endpoint))
    assert reply.text == "Yes."
    authorization = endpoint.asked[0][2]["authorization"]
    assert authorization.rpartition("Signature=")[2] == signature(endpoint, endpoint.raw[0])
    assert "s3cret" not in str(endpoint.asked)


@pytest.mark.usefixtures("aws")
def test_bedrock_api_key_works_without_botocore(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epicrisis.models.chat.endpoints.connection.find_spec", lambda _: None)
    ask(bedrock(endpoint), api_key=lambda: "bedrock-api-key-1")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-2")
    ask(bedrock(endpoint))
    assert [headers["authorization"] for _, _, headers in endpoint.asked] == [
        "Bearer bedrock-api-key-1",
        "Bearer bedrock-api-key-2",
    ]


@pytest.mark.usefixtures("aws")
def test_bedrock_without_key_and_botocore_raises_model_missing(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epicrisis.models.chat.endpoints.connection.find_spec", lambda _: None)
    with pytest.raises(ModelMissing, match=r"pip install 'epicrisis\[bedrock\]'"):
        ask(bedrock(endpoint))


@pytest.mark.usefixtures("aws")
def test_bedrock_without_credentials_sends_nothing(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("botocore") is None:
        pytest.skip("needs the extra bedrock")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(EpicrisisError, match="no credentials were found") as caught:
        ask(bedrock(endpoint))
    assert endpoint.asked == []
    assert caught.value.usage.cost == 0.0


@pytest.mark.usefixtures("aws")
def test_bedrock_with_failing_credential_service_reports_credentials(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("botocore") is None:
        pytest.skip("needs the extra bedrock")
    from botocore.exceptions import ClientError

    def refuse(_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not authorized"}}, "AssumeRole")

    monkeypatch.setattr("botocore.session.Session.get_credentials", refuse)
    with pytest.raises(EndpointRejected, match="no credentials were found"):
        ask(bedrock(endpoint))
    assert endpoint.asked == []


@pytest.mark.usefixtures("aws")
def test_bedrock_key_of_environment_is_checked_and_never_quoted(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = bedrock(endpoint)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "two\nlines")
    with pytest.raises(SettingsError, match="AWS_BEARER_TOKEN_BEDROCK does not hold a key"):
        ask(address)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-0123456789")
    error = {"error": {"message": "malformed token bedrock-api-key-0123456789"}}
    endpoint.script["/openai/v1/chat/completions"] = [Scripted(error, 400)]
    with pytest.raises(EndpointRejected) as caught:
        ask(address)
    assert "bedrock-api-key" not in caught.value.message


# -- the environment of remote endpoints ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "error", "message"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", ModelMissing, "SOCKS proxy"),
        ("SSL_CERT_FILE", "/nonexistent/ca.pem", SettingsError, r"SSL_CERT_FILE .*\(No such file"),
    ],
)
@pytest.mark.parametrize("host", ["chat.example.org", "127.0.0.1:9"])
def test_unusable_network_environment_raises_error_with_remedy(
    variable: str, value: str, error: type[EpicrisisError], message: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable == "ALL_PROXY" and host != "chat.example.org":
        pytest.skip("no proxy is asked on this machine")
    if variable == "ALL_PROXY" and find_spec("socksio") is not None:
        pytest.skip("the package that the error names is installed")
    monkeypatch.setenv(variable, value)
    with pytest.raises(error, match=message):
        ask(f"https://{host}/v1")


def make_authority(folder: Path) -> Path:
    """Write an authority (`ca.pem`) and a certificate for this machine (`server.pem`), with OpenSSL's command."""
    commands = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 "
        f"-subj /CN={folder.name} "
        "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names",
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    for command in commands:
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    pair = (folder / "server.key").read_text() + (folder / "server.crt").read_text()
    (folder / "server.pem").write_text(pair)
    return folder / "ca.pem"


class _Completions(BaseHTTPRequestHandler):
    """Answers every request with a chat completion."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(completion("Yes.", usage=USAGE)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.slow
@pytest.mark.skipif(which("openssl") is None, reason="needs the command openssl")
def test_own_authority_is_trusted_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = make_authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Completions)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with run_in_thread(server) as url:
        addresses = [url.replace("http:", "https:"), url.replace("http://127.0.0.1", "https://localhost")]
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(EndpointRejected, match="SSL_CERT_FILE"):
            ask(f"{addresses[0]}/v1")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert [ask(f"{address}/v1")[0].text for address in addresses] == ["Yes.", "Yes."]
        # A file of other authorities, as many systems set, and a folder with this one.
        for name in ("folder", "other"):
            (tmp_path / name).mkdir()
        digest = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", authority], capture_output=True, text=True, check=True
        )
        (tmp_path / "folder" / f"{digest.stdout.strip()}.0").write_bytes(authority.read_bytes())
        monkeypatch.setenv("SSL_CERT_FILE", str(make_authority(tmp_path / "other")))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "folder"))
        assert ask(f"{addresses[1]}/v1")[0].text == "Yes."
