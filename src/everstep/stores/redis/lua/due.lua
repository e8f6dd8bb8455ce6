-- Returns the time, the lanes of some flows with runs that are due, the longest due first, and how many
-- leases hold of each group and flow that has a quota.
-- ARGV: limit, number of flows, name and hash of each, quotas, runs to be left alone.
local now, limit, flows = clock(), tonumber(ARGV[2]), tonumber(ARGV[3])
local last = 4 + 2 * flows
local apart, quotas = {}, ARGV[last] ~= '' and cmsgpack.unpack(ARGV[last]) or {}
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

-- A group that is full is passed over; none of its runs may be claimed.
local function look_into(flow, hash, priority, groups)
  local seen, open = 0, 0
  repeat
    local page = redis.call('ZRANGEBYSCORE', groups, '-inf', now, 'LIMIT', seen, MOST_LANES)
    for _, group in ipairs(page) do
      if open < MOST_LANES and has_room(quotas[flow], flow, group, now) then
        open = open + 1
        look(flow, hash, priority, group)
      end
    end
    seen = seen + #page
  until #page < MOST_LANES or open >= MOST_LANES
end

for k = 0, flows - 1 do
  local flow, hash = ARGV[4 + 2 * k], ARGV[5 + 2 * k]
  local version = version_of(flow, hash)
  for _, priority in ipairs(has_room(quotas[flow], flow, nil, now)
      and redis.call('ZREVRANGE', P .. 'ranks:' .. version, 0, -1) or {}) do
    look_into(flow, hash, priority, lanes_of(version, priority))
  end
end

local live = {}
for flow in pairs(quotas) do
  for _, run_id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'leases:flow:' .. flow, '(' .. now, '+inf')) do
    live[#live + 1] = { flow, redis.call('HGET', row_of(run_id), 'group') or '' }
  end
end
return { now, lanes, live }
