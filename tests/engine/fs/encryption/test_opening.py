"""Which stores are encrypted, with which key, and how a key is changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from nyala.engine.fs import FileSystem, LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.encryption.key_source import KeySource, new_key
from nyala.engine.fs.encryption.keyring import create_keyring, mend_copy, read_keys, rotate_keyring
from nyala.engine.fs.encryption.opening import (
    Encrypted,
    damage_of_keys,
    is_encrypted,
    opened,
    opened_to_write,
    store_files,
)
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.errors import CorruptionError, InvalidArgumentError
from nyala.schemas.store.store_key import StoreKey
from tests.campaigns.crash.images import cut_at_every_call
from tests.doubles.encrypted import KEY, write_key
from tests.doubles.faulty import CONTENT, FaultRule, FaultyFileSystem

OTHER = StoreKey(bytes(range(100, 132)))
NOTHING: dict[str, str] = {}


def content(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path)
    return file.pread(0, file.size)


def new_store(key: StoreKey | None) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    Store.open(disk, StoreOptions(maintenance="off", wal_segment_bytes=4096, key=key)).close()
    return disk


@pytest.mark.parametrize("key", [None, OTHER])
def test_without_the_key_nothing_is_touched_and_no_damage_is_reported(key: StoreKey | None) -> None:
    disk = new_store(KEY)
    before = disk.operations
    with pytest.raises(InvalidArgumentError, match=f"encrypted with the key {KEY.id}") as caught:
        Store.open(disk, StoreOptions(key=key))
    assert KEY.secret.hex() not in caught.value.message
    assert disk.operations - before <= 2, "to make the root and to lock it"
    with pytest.raises(InvalidArgumentError, match="key"):
        opened(disk, key)


def test_a_plain_store_takes_no_key_and_stays_as_it_is() -> None:
    disk = new_store(None)
    assert opened(disk, None) is disk and opened(disk, KEY) is disk
    with pytest.raises(InvalidArgumentError, match="not encrypted"):
        Store.open(disk, StoreOptions(key=KEY))
    assert "keys" not in disk.list("")


def test_missing_keys_are_not_taken_for_a_plain_store_or_a_new_one() -> None:
    disk = new_store(KEY)
    disk.unlink("keys.copy")
    disk.unlink("keys")
    for key in (None, KEY):
        with pytest.raises(CorruptionError, match="keys is missing") as caught:
            Store.open(disk, StoreOptions(key=key))
        assert caught.value.path == "keys" and "repair" not in caught.value.message
    assert "keys" not in disk.list("")


def test_each_copy_of_the_keys_stands_for_the_other_and_is_made_again() -> None:
    for lost in ("keys", "keys.copy"):
        disk = new_store(KEY)
        disk.unlink(lost)
        Store.open(disk, StoreOptions(key=KEY)).close()
        assert content(disk, "keys") == content(disk, "keys.copy")


def put(fs: FileSystem, path: str, content: bytes) -> None:
    if fs.exists(path):
        fs.unlink(path)
    fs.create(path).append(content)


@pytest.mark.parametrize("lost", ["keys", "keys.copy"])
def test_a_damaged_copy_of_the_keys_is_told_and_mended(lost: str) -> None:
    disk = new_store(KEY)
    damaged = bytearray(content(disk, lost))
    damaged[40] ^= 1
    put(disk, lost, bytes(damaged))
    report = verify_store(opened(disk, KEY))
    assert len(report.problems) == 1 and report.problems[0].startswith(f"CORRUPTION: {lost} at byte 0"), report
    store = Store.open(disk, StoreOptions(key=KEY, maintenance="off"))
    assert [each.path for each in store.health().damaged] == [lost]
    store.close()
    assert verify_store(opened(disk, KEY)).is_sound


@pytest.mark.parametrize("lost", ["keys", "keys.copy"])
def test_keys_that_cannot_be_read_have_a_copy(lost: str) -> None:
    disk = new_store(KEY)
    failing = FaultyFileSystem(disk, [FaultRule(calls=CONTENT, path=lost, sticky=True)])
    assert [each.path for each in damage_of_keys(opened(failing, KEY))] == [lost]
    store = Store.open(failing, StoreOptions(key=KEY, maintenance="off"))
    assert [each.path for each in store.health().damaged] == [lost]
    store.close()


def test_older_keys_never_replace_newer_ones() -> None:
    """Whoever puts back an older file has its newest state in the copy only."""
    disk = new_store(KEY)
    older = content(disk, "keys")
    rotate_keyring(disk, KEY, OTHER)
    Store.open(disk, StoreOptions(key=OTHER, maintenance="off")).close()
    newer = content(disk, "keys.copy")
    put(disk, "keys", older)
    for key in (KEY, OTHER):
        with pytest.raises(InvalidArgumentError, match=f"{KEY.id}.*{OTHER.id}"):
            Store.open(disk, StoreOptions(key=key))
        with pytest.raises(InvalidArgumentError, match=f"{KEY.id}.*{OTHER.id}"):
            rotate_keyring(disk, key, new_key())
    assert content(disk, "keys.copy") == newer
    put(disk, "keys", newer)
    Store.open(disk, StoreOptions(key=OTHER)).close()
    for lost in ("keys", "keys.copy"):
        put(disk, lost, older)
    with pytest.raises(InvalidArgumentError, match="older than this file"):
        Store.open(disk, StoreOptions(key=KEY))
    disk.unlink("keys.copy")
    with pytest.raises(InvalidArgumentError, match="older than this file"):
        Store.open(disk, StoreOptions(key=KEY))
    assert not disk.exists("keys.copy"), "nothing is written with keys that do not open the manifest"


@pytest.mark.parametrize("left", ["wal", "tablets", "manifest.copy"])
def test_a_key_does_not_encrypt_a_store_whose_manifest_is_missing(left: str) -> None:
    disk = MemoryFileSystem()
    if left == "manifest.copy":
        put(disk, left, b"content")
    else:
        disk.make_directory(left)
        put(disk, f"{left}/1", b"content")
    with pytest.raises(InvalidArgumentError, match=f"the directory has {left}"):
        Store.open(disk, StoreOptions(key=KEY))
    assert not disk.exists("keys")


def test_another_thing_named_keys_does_not_make_a_store_encrypted() -> None:
    for makes in (lambda fs: fs.make_directory("keys"), lambda fs: put(fs, "keys", b"of somebody else")):
        disk = new_store(None)
        makes(disk)
        assert opened(disk, None) is disk
        Store.open(disk, StoreOptions(maintenance="off")).close()


def test_a_rotation_writes_the_keys_and_nothing_else() -> None:
    disk = new_store(KEY)
    before = {path: content(disk, path) for path in ("manifest", "manifest.copy")}
    rotate_keyring(disk, KEY, OTHER)
    assert before == {path: content(disk, path) for path in before}
    with pytest.raises(InvalidArgumentError):
        Store.open(disk, StoreOptions(key=KEY))
    Store.open(disk, StoreOptions(key=OTHER)).close()
    assert [entry.id for entry in read_keys(disk).keys] == [1, 2]
    assert content(disk, "manifest")[40] == 2, "new files have a key that the old store key never encrypted"
    rotate_keyring(disk, KEY, OTHER)
    assert len(read_keys(disk).keys) == 2, "a repetition does nothing"
    with pytest.raises(InvalidArgumentError):
        rotate_keyring(disk, new_key(), KEY)


def test_a_power_failure_in_a_rotation_leaves_one_key_or_the_other() -> None:
    def disk() -> MemoryFileSystem:
        fs = MemoryFileSystem()
        create_keyring(fs, KEY)
        return fs

    seen = set()
    for image in cut_at_every_call(disk, lambda fs: rotate_keyring(fs, KEY, OTHER), images=8):
        found = read_keys(image).store_key
        seen.add(found)
        rotate_keyring(image, KEY, OTHER)
        mend_copy(image)
        assert read_keys(image).store_key == OTHER.id
        assert content(image, "keys") == content(image, "keys.copy")
    assert seen == {KEY.id, OTHER.id}


def test_a_power_failure_while_a_store_is_made_leaves_none_or_an_encrypted_one() -> None:
    def make(fs: MemoryFileSystem) -> None:
        Store.open(fs, StoreOptions(maintenance="off", wal_segment_bytes=4096, key=KEY)).close()

    count = 0
    for image in cut_at_every_call(MemoryFileSystem, make, images=3):
        make(image)
        assert is_encrypted(image)
        assert isinstance(opened_to_write(image, KeySource(key=KEY)), Encrypted)
        count += 1
    assert count > 50


def test_where_a_key_comes_from(tmp_path: Path) -> None:
    file = write_key(tmp_path / "key")
    named = {"NYALA_KEY_FILE": str(file)}
    assert KeySource(str(file)).read(NOTHING) == KeySource().read(named) == KEY
    assert KeySource(command=f"cat {file}").read(named) == KEY
    assert KeySource().read({"NYALA_KEY_COMMAND": f"cat {file}"}) == KEY
    assert KeySource().read(NOTHING) is None
    assert KeySource(key=OTHER).read(named) == OTHER


def test_an_empty_variable_does_not_make_a_new_store_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a script names the key by a variable of its own that is not set. Stores that are there say it."""
    old, new = MemoryFileSystem(), MemoryFileSystem()
    Store.open(old, StoreOptions(maintenance="off")).close()
    for name in ("NYALA_KEY_FILE", "NYALA_KEY_COMMAND"):
        with monkeypatch.context() as named:
            named.setenv(name, "")
            with pytest.raises(InvalidArgumentError, match=f"{name} is set but empty"):
                Store.open(new, StoreOptions(maintenance="off"))
            assert not new.exists("manifest")
            Store.open(old, StoreOptions(maintenance="off")).close()
    Store.open(new, StoreOptions(maintenance="off", key=KEY)).close()
    assert is_encrypted(new)


def test_a_key_that_is_none_is_said_so_and_never_shown(tmp_path: Path) -> None:
    file = write_key(tmp_path / "key", "secret" * 12)
    sources = [KeySource(str(file)), KeySource(str(tmp_path / "none")), KeySource(command="exit 3")]
    sources += [KeySource(command=f"cat {file}"), KeySource(str(file), "cat"), KeySource(str(file), key=KEY)]
    for source in sources:
        with pytest.raises(InvalidArgumentError) as caught:
            source.read(NOTHING)
        assert "secret" not in caught.value.message
    for given in ("secret" * 12, b"secret", 7):
        with pytest.raises(InvalidArgumentError) as caught:
            StoreOptions.model_validate({"key": given})
        assert "secret" not in caught.value.message
    options = StoreOptions.model_validate({"key": KEY.text})
    assert options.key == KEY
    for told in (repr(options), options.model_dump_json(), repr(options.key)):
        assert KEY.secret.hex() not in told and repr(KEY.secret) not in told


def test_import_storage_is_refused(tmp_path: Path) -> None:
    options = StoreOptions(key=KEY, import_storage=f"file://{tmp_path}/imports")
    with pytest.raises(InvalidArgumentError, match="import_storage"):
        Store.open(tmp_path / "store", options)


def test_a_process_asks_once_for_the_key_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, asked = tmp_path / "store", tmp_path / "asked"
    Store.open(home, StoreOptions(maintenance="off", wal_segment_bytes=4096, key=KEY)).close()
    (tmp_path / "key").write_text(KEY.text)
    monkeypatch.setenv("NYALA_KEY_COMMAND", f"echo >> {asked}; cat {tmp_path}/key")
    for _ in range(3):
        assert store_files(home).open("manifest").size
    assert asked.read_text() == "\n"
    rotate_keyring(LocalFileSystem(home), KEY, OTHER)
    with pytest.raises(InvalidArgumentError, match=OTHER.id):
        store_files(home)
    assert asked.read_text() == "\n\n"


def test_a_key_command_reads_no_input_and_prints_digits(tmp_path: Path) -> None:
    message = b"permission denied: contact ops.\n"
    assert len(message) == 32
    write_key(tmp_path / "key", message.decode())
    for source in (KeySource(str(tmp_path / "key")), KeySource(command=f"cat {tmp_path}/key")):
        with pytest.raises(InvalidArgumentError, match="64 hexadecimal digits"):
            source.read(NOTHING)
    script = "from nyala.engine.fs.encryption.key_source import KeySource; KeySource(command='cat').read({})"
    done = subprocess.run([sys.executable, "-c", script], input=KEY.text, capture_output=True, text=True, timeout=60)
    assert done.returncode and "output of the key command is not a key" in done.stderr
    assert StoreKey.of(message).secret == message, "a caller may have raw bytes"


def test_no_error_of_the_options_shows_the_key() -> None:
    for wrong in ({"server": "x"}, {"maintenance": "perhaps"}, {"nonsense": 1}):
        with pytest.raises(ValidationError) as caught:
            StoreOptions.model_validate({"key": KEY.text, **wrong})
        assert KEY.secret.hex()[:12] not in str(caught.value) and KEY.secret.hex()[-12:] not in str(caught.value)
