-- Goes round the requests of a folder and prints what it saw as one line of JSON.
local folder = os.getenv("BODIES")

local function read(name)
  local file = assert(io.open(folder .. "/" .. name, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local headers = {}
for line in read("headers"):gmatch("[^\n]+") do
  local name, value = line:match("^(.-): (.*)$")
  headers[name] = value
end

local requests, last = {}, 0
function init()
  for number = 0, tonumber(os.getenv("COUNT")) - 1 do
    table.insert(requests, wrk.format("POST", nil, headers, read("body-" .. number)))
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
