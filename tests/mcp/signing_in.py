"""A server that wants people to sign in: the SDK's own authorization server, with hands on its clock and its lies."""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from httpx2 import AsyncClient
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl


class Authority:
    """Registers clients, lets everybody in, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.n_signed_in = 0
        self.n_refreshed = 0
        self.lifetime_s = 3600
        self.grants: list[str] | None = None
        """The rights that it grants whatever was asked for; None: those."""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.n_signed_in += 1
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: object, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._grant(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: object, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.n_refreshed += 1
        return self._grant(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError

    def _grant(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        scopes = scopes if self.grants is None else self.grants
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes, resource=resource)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime_s, scope=" ".join(scopes) or None
        )


@asynccontextmanager
async def guarded(authority: Authority) -> AsyncGenerator[str]:
    """The address of a server with one tool, at which one has to sign in."""
    listening = socket.create_server(("127.0.0.1", 0))
    root = f"http://127.0.0.1:{listening.getsockname()[1]}"
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(root),
        resource_server_url=AnyHttpUrl(f"{root}/mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["notes"]),
        required_scopes=["notes"],
        validate_token_resource=True,
    )
    given: Any = authority  # the SDK's protocol is generic over its own three classes
    mcp = MCPServer("notes", auth_server_provider=given, auth=settings)

    @mcp.tool()
    def read_note() -> str:
        """Read the note."""
        return "water the plants"

    server = uvicorn.Server(uvicorn.Config(mcp.streamable_http_app(), log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"{root}/mcp"
    finally:
        server.should_exit = True
        await serving


async def sign_in_at(address: str) -> None:
    """Do what a browser does with the address of a page that lets everybody in."""
    async with AsyncClient(follow_redirects=True) as browser:
        (await browser.get(address)).raise_for_status()
