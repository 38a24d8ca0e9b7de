from __future__ import annotations

import json
import os
import socket
import sqlite3
from pathlib import Path

import pytest

from gpu_profiles.loader import profiles
from kernel_agent import doctor
from kernel_agent.settings import load_settings
from tests.kernel_agent.cli.conftest import Run, refused
from tests.kernel_agent.cli.tiny import write_recording
from tests.kernel_agent.gateway.conftest import Provider, Request, completion

CHECKS = [
    "Python",
    "jail",
    "control group",
    "C++ compiler",
    "ninja",
    "Python headers",
    "git",
    "torch",
    "database",
    "disk",
    "package names",
    "GPU",
    "nvcc",
    "chromium",
]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def calls_the_tool(request: Request) -> tuple[int, bytes, dict[str, str]]:
    name = json.loads(request.body)["tools"][0]["function"]["name"]
    function = {"name": name, "arguments": '{"word":"ready"}'}
    message = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    usage = {"prompt_tokens": 80, "completion_tokens": 20}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": usage}
    return 200, json.dumps(body).encode(), {}


def test_gpus_lists_devices_or_the_reason_and_every_profile(run: Run) -> None:
    document = run("gpus", "--json").document
    assert bool(document["devices"]) != bool(document["reason"])
    assert [profile["id"] for profile in document["profiles"]] == [profile.id for profile in profiles()]
    result = run("gpus")
    assert result.code == 0
    assert all(profile.name in result.out for profile in profiles())


def test_doctor_looks_at_everything(run: Run, home: Path) -> None:
    result = run("doctor", "--json")
    found = {check["name"]: check for check in result.document["checks"]}
    assert list(found) == CHECKS
    assert str(home) in found["database"]["found"]
    assert result.document["healthy"] == all(check["state"] != "failed" for check in found.values())
    assert result.code == (0 if result.document["healthy"] else 1)
    assert all(check["remedy"] for check in found.values() if check["state"] == "failed")


def test_doctor_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for check, package in ((doctor.compiler(), "g++"), (doctor.git(), "git"), (doctor.browser(), "chromium")):
        assert (check.state == "ok", check.found) == (False, "not found")
        assert f"apt-get install {package}" in check.remedy


def test_doctor_warns_of_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(tmp_path) in doctor.disk(tmp_path / "not" / "there").found
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 1 << 60)
    assert doctor.disk(tmp_path).state == "warning"


def test_doctor_finds_the_newest_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert doctor.cuda_compiler().found == str(nvcc)
    versions = [Path("cuda-12.8"), Path("cuda-12.10"), Path("cuda"), Path("cuda-9")]
    assert [p.name for p in sorted(versions, key=doctor._version_of)] == ["cuda-9", "cuda-12.8", "cuda-12.10", "cuda"]


def test_doctor_sees_a_locked_database(home: Path) -> None:
    settings = load_settings()
    assert doctor.database(settings).state == "ok"
    holder = sqlite3.connect(home / "kernel-agent.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    check = doctor.database(settings)
    holder.close()
    assert check.state == "failed"
    assert "locked" in check.remedy


def test_doctor_sees_a_home_that_cannot_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("--home", tmp_path / "file" / "home", "doctor")
    assert result.code == 1
    assert "KERNEL_AGENT_HOME" in result.out


def test_doctor_sees_another_owner_of_a_package_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other-1.0.dist-info").mkdir()
    (tmp_path / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (tmp_path / "other-1.0.dist-info" / "RECORD").write_text("evaluator/__init__.py,,\n")
    (tmp_path / "evaluator").mkdir()
    (tmp_path / "evaluator" / "__init__.py").write_text("")
    assert doctor.packages().state == "ok"
    monkeypatch.syspath_prepend(str(tmp_path))
    check = doctor.packages()
    assert check.state == "failed"
    assert "evaluator is also installed by other" in check.found


def test_a_model_that_calls_the_tool(run: Run, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.respond = calls_the_tool
    monkeypatch.setenv("TEST_KEY", "sk-secret-of-ours")
    arguments = ("--model", "openai/m", "--base-url", provider.url, "--price", "1,0.1,4", "--api-key-env", "TEST_KEY")
    asked = run("doctor", *arguments, "--json").document["model"]
    assert asked["answered"]
    assert asked["called_tool"]
    assert "ready" in asked["said"]
    assert (asked["prompt_tokens"], asked["completion_tokens"]) == (80, 20)
    assert asked["cost_usd"] == pytest.approx((80 * 1 + 20 * 4) / 1e6)
    assert len(provider.requests) == 1
    assert provider.requests[0].headers["authorization"] == "Bearer sk-secret-of-ours"
    result = run("doctor", *arguments)
    assert "made the tool call" in result.out
    assert "sk-secret" not in result.out + result.err


def test_a_model_that_only_talks(run: Run, provider: Provider) -> None:
    provider.respond = lambda request: completion(request, "I would rather not")
    result = run("doctor", "--model", "m", "--base-url", provider.url, "--price", "1,1,1")
    assert "without the tool call" in result.out
    assert "I would rather not" in result.out


def test_a_model_that_refuses(run: Run, provider: Provider) -> None:
    provider.respond = lambda _: (401, b'{"error":{"message":"the key is wrong"}}', {})
    result = run("doctor", "--model", "m", "--base-url", provider.url, "--price", "1,1,1")
    assert result.code == 1
    assert "did not answer" in result.out
    assert "the key is wrong" in result.out


def test_a_recording_answers_too(run: Run, tiny: Path, tmp_path: Path) -> None:
    recording = write_recording(tmp_path, tiny)
    asked = run("doctor", "--model", f"replay:{recording}", "--json").document["model"]
    assert asked["answered"]
    assert not asked["called_tool"]


def test_model_mistakes_are_one_clear_error(run: Run) -> None:
    refused(run("doctor", "--model", "gpt-5-nana"), "no price", "gpt-5-nano", "--price")
    refused(run("doctor", "--model", "openai/gpt-5"), "OPENAI_API_KEY", "--api-key-env")
    refused(run("doctor", "--model", "m", "--price", "1,2"), "IN,CACHED,OUT")
    refused(run("doctor", "--price", "1,2,3"), "--model")
    url = f"http://127.0.0.1:{closed_port()}/v1"
    refused(run("doctor", "--model", "m", "--price", "1,2,3", "--base-url", url), url, "--base-url")
    refused(run("doctor", "--model", "replay:nobody"), "nobody")
    assert "OPENAI_API_KEY" not in os.environ
