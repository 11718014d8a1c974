-- What retention, blob collection and parked entries need.

-- Where the content lies. A name is used once, so that a late deletion can only
-- meet what nobody refers to. Not set: by tenant and hash, as before.
ALTER TABLE blob ADD COLUMN object TEXT;

CREATE INDEX blob_last_put ON blob (last_put_at);
CREATE INDEX blob_object ON blob (object) WHERE object IS NOT NULL;
CREATE INDEX outbox_parked ON outbox (seq) WHERE stage = 'parked';
