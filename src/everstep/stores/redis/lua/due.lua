-- Returns the time, the lanes of some flows with runs that somebody should drive, the longest due first, and how many
-- leases hold of each group and flow that has a quota.
-- ARGV: limit, number of flows, name and hash of each, number of quotas, the flows that have one, runs to be left alone.
local now, limit, flows = clock(), tonumber(ARGV[2]), tonumber(ARGV[3])
local quotas = tonumber(ARGV[4 + 2 * flows])
local apart, last = {}, 4 + 2 * flows + quotas
for k = last + 1, #ARGV do
  apart[ARGV[k]] = true
end
-- A claim needs few runs of each lane if there are many lanes.
local MOST_LANES, MOST_RUNS = 200 + limit, 2000 + limit
local lanes, count = {}, 0

local function look(flow, hash, priority, group)
  local lane = lane_of(version_of(flow, hash), priority, group)
  local many = (count < MOST_RUNS and limit or 1) + #ARGV - last
  local due, runs = redis.call('ZRANGEBYSCORE', lane, '-inf', now, 'WITHSCORES', 'LIMIT', 0, many), {}
  for k = 1, #due, 2 do
    if not apart[string.sub(due[k], 17)] then
      runs[#runs + 1] = due[k]
      runs[#runs + 1] = due[k + 1]
      count = count + 1
    end
  end
  if #runs > 0 then
    lanes[#lanes + 1] = { priority, flow, group, runs }
  end
end

for k = 0, flows - 1 do
  local flow, hash = ARGV[4 + 2 * k], ARGV[5 + 2 * k]
  local version = version_of(flow, hash)
  for _, priority in ipairs(redis.call('ZREVRANGE', P .. 'ranks:' .. version, 0, -1)) do
    local groups = redis.call('ZRANGEBYSCORE', lanes_of(version, priority), '-inf', now, 'LIMIT', 0, MOST_LANES)
    for _, group in ipairs(groups) do
      look(flow, hash, priority, group)
    end
  end
end

local live = {}
for k = last - quotas + 1, last do
  for _, run_id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'leases:flow:' .. ARGV[k], '(' .. now, '+inf')) do
    live[#live + 1] = { ARGV[k], redis.call('HGET', row_of(run_id), 'group') or '' }
  end
end
return { now, lanes, live }
