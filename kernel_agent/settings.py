"""Where things are and what the user prefers: flags win over ``KERNEL_AGENT_*``, which wins over the TOML file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from kernel_agent.errors import UsageError

CONFIG_NAME = "config.toml"


class ModelProfile(BaseModel):
    """A model under a short name, ``[models.NAME]`` in the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    price: str | None = None
    """``IN,CACHED,OUT`` in US dollars per million tokens."""
    context_tokens: int | None = None
    max_output_tokens: int | None = None


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="KERNEL_AGENT_", frozen=True, extra="forbid")

    home: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("kernel-agent")))
    database: str | None = None
    """SQLAlchemy URL; None: a SQLite file in the home."""
    kernelbench: Path | None = None
    """Folder of a KernelBench checkout."""
    token: str | None = None
    """The dashboard's token, for programs."""
    models: dict[str, ModelProfile] = Field(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (no .env file is read)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_path())

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{(self.home / 'kernel-agent.db').absolute()}"

    @property
    def build_cache(self) -> Path:
        return self.home / "cache" / "builds"

    @property
    def soundness_cache(self) -> Path:
        return self.home / "cache" / "soundness"

    @property
    def baseline_cache(self) -> Path:
        return self.home / "cache" / "baselines"


def config_path() -> Path:
    """``KERNEL_AGENT_CONFIG``, or the platform's configuration folder."""
    return Path(
        os.environ.get("KERNEL_AGENT_CONFIG") or Path(platformdirs.user_config_dir("kernel-agent")) / CONFIG_NAME
    )


def load_settings(**flags: Any) -> Settings:
    """Settings with the flags that were given. Raises UsageError naming the source of what is wrong."""
    given = {k: v for k, v in flags.items() if v is not None}
    try:
        return Settings(**given)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{config_path()} is not valid TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise UsageError(
            f"setting {where!r}: {first['msg']} (from a flag, KERNEL_AGENT_{where.upper()} or {config_path()})"
        ) from error
