-- Gives leases that were decided on what rows said, unless a row has changed since, or no quota has room any more.
-- Returns 1 for each that was given, else 0.
-- ARGV: only what is due, and settle that; quotas; then for each: run; epoch, owner, expiry, head as they were; the
-- new lease.
local EACH, given = 10, {}
local now, has_written = clock(), false
local quotas = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3]) or {}

-- Since we looked, another worker may have driven the run until it ended, or halted again.
local function is_due(run_id, flow, group, hash, priority, n)
  local lane = lane_of(version_of(flow, hash), priority or '0', group or '')
  local at = redis.call('ZSCORE', lane, name_in_lane(run_id, n))
  return at and tonumber(at) <= tonumber(now)
end

local function may_have(run_id, flow, group, ...)
  return is_due(run_id, flow, group, ...) and has_room(quotas[flow], flow, group, now)
end

for at = 3, #ARGV - EACH, EACH do
  local run_id, row = ARGV[at + 1], row_of(ARGV[at + 1])
  local f = redis.call('HMGET', row, 'epoch', 'owner', 'expires', 'head', 'status', 'repair', 'flow', 'group', 'hash',
    'priority', 'n')
  local owner, epoch, expires, process, takeovers = unpack(ARGV, at + 6, at + 10)
  local is_same = f[1] == ARGV[at + 2] and (f[2] or '') == ARGV[at + 3] and (f[3] or '') == ARGV[at + 4]
    and f[4] == ARGV[at + 5]
  local is_given = is_same and (ARGV[2] == '0' or may_have(run_id, unpack(f, 7, 11)))
  if is_given then
    redis.call('HSET', row, 'owner', owner, 'epoch', epoch, 'expires', expires, 'takeovers', takeovers,
      'claimed', f[4], 'process', process)
    if process == '' then
      redis.call('HDEL', row, 'process')
    end
    if f[6] and not is_pause(f[6], f[5]) then
      keep_mark(run_id, f[11], nil)
    end
    note_lease(run_id, expires, f[7], f[8])
    if ARGV[2] == '1' then
      settle_due(run_id, f[5], now)
    end
    reckon(run_id)
    has_written = true
  end
  -- One that is there already was given before the reply was lost.
  given[#given + 1] = (is_given or f[1] == epoch and f[2] == owner) and 1 or 0
end
if has_written then
  announce()
end
return given
