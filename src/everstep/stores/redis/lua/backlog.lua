-- Counts the runs that are due, by version of their flow: name, hash, how many, since when the first of them is.
-- ARGV: of how many runs of a kind to look.
local now, most = tonumber(clock()), tonumber(ARGV[2])
local found, order, seen = {}, {}, {}

local function look(run_id, since)
  if seen[run_id] then
    return
  end
  seen[run_id] = true
  local f = redis.call('HMGET', row_of(run_id), 'status', 'flow', 'hash', 'created', 'expires', 'repair')
  local status, expires = f[1], tonumber(f[5] or '0')
  if not status or FINAL[status] or f[6] or expires > now or (since and status ~= 'halted') then
    return
  end
  since = since or f[5] or f[4]
  local version = version_of(f[2], f[3])
  if not found[version] then
    found[version] = { f[2], f[3], 0, since }
    order[#order + 1] = version
  end
  local of = found[version]
  of[3] = of[3] + 1
  if tonumber(since) < tonumber(of[4]) then
    of[4] = since
  end
end

for _, run_id in ipairs(redis.call('ZRANGE', P .. 'status:running', 0, most - 1)) do
  look(run_id)
end
for _, wait_id in ipairs(redis.call('ZRANGE', P .. 'waits:settled', 0, most - 1)) do
  local w = redis.call('HMGET', wait_of(wait_id), 'run', 'settled')
  look(w[1], w[2])
end
for _, wait_id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'timers', '-inf', now, 'LIMIT', 0, most)) do
  local w = redis.call('HMGET', wait_of(wait_id), 'run', 'due')
  look(w[1], w[2])
end
local versions = {}
for k, version in ipairs(order) do
  versions[k] = found[version]
end
return versions
