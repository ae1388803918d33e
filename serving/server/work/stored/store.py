"""Opens the store that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.errors import NoStoreError, SettingsError, install_command
from serving.server.http.settings import ROOT, Settings, variable

if TYPE_CHECKING:
    from serving.store.store import Store


def open_store(settings: Settings) -> Store | None:
    """Open the store of the settings; None if they name none.

    Raises SettingsError if it is unusable, and StoreUnavailableError if it does not answer.
    """
    url = settings.store.get_secret_value()
    if not url:
        return None
    try:
        # Imported here, because the libraries are optional and take time to import.
        from serving.store.store import Store
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{variable('store')} needs {error.name}; install it with `{install_command('store')}`"
        ) from error
    return Store(url, ROOT)


def needed_store(store: Store | None, purpose: str) -> Store:
    """The store. Raises NoStoreError, which names the `purpose` (in the plural), if there is
    none."""
    if store is None:
        raise NoStoreError(
            f"{purpose} are not stored on this server, which has no store; its operator can set "
            f"{variable('store')}=sqlite:///store.db"
        )
    return store
