"""Leases on devices: one owner at a time, told apart by epoch."""

from __future__ import annotations

from datetime import timedelta

from kernel_agent.store.errors import StaleLeaseError
from kernel_agent.store.part import StorePart
from kernel_agent.store.schema import DeviceLeaseRow


class Devices(StorePart):
    def acquire_device(self, device_uuid: str, owner: str, ttl_seconds: float) -> int | None:
        """Take a free or expired device; returns the lease's epoch, or None while someone holds it."""
        now = self._now()
        with self._db.write() as tx:
            row = tx.get(DeviceLeaseRow, device_uuid, with_for_update=True)
            if row is None:
                row = DeviceLeaseRow(device_uuid=device_uuid, epoch=0)
                tx.add(row)
            elif row.expires_at is not None and row.expires_at > now:
                return None
            row.epoch += 1
            row.owner, row.expires_at = owner, now + timedelta(seconds=ttl_seconds)
            return row.epoch

    def renew_device(self, device_uuid: str, epoch: int, ttl_seconds: float) -> None:
        """Extend a lease to ``ttl_seconds`` from now.

        :raises StaleLeaseError: the device was released or taken by someone else.
        """
        with self._db.write() as tx:
            row = tx.get(DeviceLeaseRow, device_uuid, with_for_update=True)
            if row is None or row.epoch != epoch or row.owner is None:
                raise StaleLeaseError(f"the lease {epoch} of device {device_uuid} is over; stop using the device")
            row.expires_at = self._now() + timedelta(seconds=ttl_seconds)

    def release_device(self, device_uuid: str, epoch: int) -> None:
        """Give a device back. A lease that is over already is left alone."""
        with self._db.write() as tx:
            row = tx.get(DeviceLeaseRow, device_uuid, with_for_update=True)
            if row is not None and row.epoch == epoch:
                row.owner = row.expires_at = None
